"""The lease of this broker's registration, as the event loop knows it.

A broker that was paused past its lease steps down before it answers anything as leader: others may
lead its partitions since. A broker that is only cut off from the coordinator keeps its roles, and
its lease is overdue: each of its leaders then goes on or is suspended, by what its followers ask
(`broker/partitions/replication/leader.py`). The difference is whether the loop ran when the lease ended.

Renewals run outside the event loop. They stop when the loop has not run for a lease time: else a
leader that hangs would lead for ever.
"""

from __future__ import annotations


class Lease:
    """A lease that must be renewed. All times are those of one monotonic clock, in ms."""

    __slots__ = ("_ends_ms", "_is_lost", "_last_run_ms", "_least_pause_ms", "duration_ms")

    def __init__(self, duration_ms: int, granted_ms: int) -> None:
        """Begins with a lease that was asked for at `granted_ms`."""
        self.duration_ms = duration_ms
        self._ends_ms = granted_ms + duration_ms
        self._last_run_ms = granted_ms
        self._is_lost = False
        # The loop asks at least every third of a lease (`Leader.on_tick`). A shorter silence is no pause:
        # renewals are sent as often, so it ends no lease that was being renewed.
        self._least_pause_ms = duration_ms // 3

    def on_renewed(self, sent_ms: int) -> None:
        """Extends the lease by a renewal that was sent at `sent_ms`, and that the coordinator confirmed."""
        self._ends_ms = max(self._ends_ms, sent_ms + self.duration_ms)

    def on_lost(self) -> None:
        """Ends the lease, for good: the coordinator has ended it, or has granted none yet."""
        self._is_lost = True

    def is_lost(self, now_ms: int) -> bool:
        """Returns whether the broker has to step down. Each call shows that the loop runs.

        Once lost, it stays lost: the broker registers anew.
        """
        if not self._is_lost:
            pause_ms = now_ms - self._last_run_ms
            if pause_ms >= self._least_pause_ms:
                self._is_lost = self._was_paused_past_end(pause_ms, now_ms)
            if pause_ms > 0:
                self._last_run_ms = now_ms
        return self._is_lost

    def is_overdue(self, now_ms: int) -> bool:
        """Returns whether no renewal of the last lease time was confirmed: it may have ended."""
        return now_ms >= self._ends_ms

    def may_renew(self, now_ms: int) -> bool:
        """Returns whether the loop has run recently enough for a renewal to be sent."""
        return not self._is_lost and now_ms - self._last_run_ms < self.duration_ms

    def _was_paused_past_end(self, pause_ms: int, now_ms: int) -> bool:
        """Returns whether the lease ended while the loop stood still.

        A silence of a whole lease loses the lease, whatever was renewed.
        """
        return pause_ms >= self.duration_ms or self.is_overdue(now_ms)
