"""The lease of this broker's registration, as the data loop knows it.

A broker that was paused past its lease steps down before it answers anything as leader: others may
lead its partitions since. A broker that is only cut off from the coordinator goes on, as Kafka's
does, unless `broker.fence.when.cut.off` is set: its ISR changes lose, so acks=all cannot complete.
The difference is whether the loop ran when the lease ended.

Renewals run outside the data loop. They stop when that has not run for a lease time, or a leader
that hangs would lead for ever.
"""

from __future__ import annotations


class Lease:
    """A lease that must be renewed. All times are those of one monotonic clock, in ms."""

    __slots__ = ("_duration_ms", "_ends_ms", "_fences_when_cut_off", "_is_lost", "_last_run_ms")

    def __init__(
        self, duration_ms: int, granted_ms: int, *, fences_when_cut_off: bool = False
    ) -> None:
        """Begins with a lease that was asked for at `granted_ms`."""
        self._duration_ms = duration_ms
        self._ends_ms = granted_ms + duration_ms
        self._last_run_ms = granted_ms
        self._fences_when_cut_off = fences_when_cut_off
        self._is_lost = False

    def on_renewed(self, sent_ms: int) -> None:
        """Takes a renewal that the coordinator confirmed; it was sent at `sent_ms`."""
        self._ends_ms = max(self._ends_ms, sent_ms + self._duration_ms)

    def on_lost(self) -> None:
        """The coordinator says that the lease is gone. That is for good."""
        self._is_lost = True

    def is_lost(self, now_ms: int) -> bool:
        """Returns whether the broker has to step down. Each call shows that the loop runs.

        Once lost, it stays lost: the broker registers anew.
        """
        if not self._is_lost:
            self._is_lost = self._was_paused_past_end(now_ms) or self._is_cut_off(now_ms)
            self._last_run_ms = max(self._last_run_ms, now_ms)
        return self._is_lost

    def may_renew(self, now_ms: int) -> bool:
        """Returns whether the loop has run recently enough for a renewal to be sent."""
        return not self._is_lost and now_ms - self._last_run_ms < self._duration_ms

    def _was_paused_past_end(self, now_ms: int) -> bool:
        """Returns whether the lease ended while the loop stood still.

        The loop asks at least every third of a lease (`Leader.on_tick`). A shorter silence is no
        pause: renewals are sent as often, so it ends no lease that was being renewed. A silence of
        a whole lease loses the lease, whatever was renewed.
        """
        pause_ms = now_ms - self._last_run_ms
        is_over = now_ms >= self._ends_ms or pause_ms >= self._duration_ms
        return is_over and pause_ms >= self._duration_ms // 3

    def _is_cut_off(self, now_ms: int) -> bool:
        return self._fences_when_cut_off and now_ms >= self._ends_ms
