"""What a leader knows of one follower, in one leader epoch.

The fetch offset of a follower is where its log ends. A new leader knows no follower's log end: it
forgets what it knew as an earlier leader. A fetch names the registration (broker epoch) of the
follower that sent it, because a broker that has started anew may have lost the end of its log
(KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partitions.replication.messages import NO_EPOCH, NO_OFFSET

if TYPE_CHECKING:
    from tidelog.broker.partitions.replication.messages import FetchRequest


class RemoteReplica:
    """A follower, as its fetches show it."""

    __slots__ = (
        "_end_at_last_fetch",
        "_last_fetch_ms",
        "asked_ms",
        "broker",
        "broker_epoch",
        "caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker: int, caught_up_ms: int | None) -> None:
        """Begins with a follower that has not fetched.

        `caught_up_ms` is when it counts as caught up: now for a member of the ISR, else never.
        """
        self.broker = broker
        self.broker_epoch = NO_EPOCH  # of its last fetch
        self.log_end_offset = NO_OFFSET  # NO_OFFSET: it has not fetched in this leader epoch
        self.log_start_offset = NO_OFFSET
        self.caught_up_ms = caught_up_ms  # the last time at which it had the whole log; None: never
        # The last fetch of the session that asks for the partition; None: no session asks for it.
        self.asked_ms: int | None = None
        self._last_fetch_ms = 0
        self._end_at_last_fetch: int | None = None

    def on_fetch(self, request: FetchRequest, leader_end: int, now_ms: int) -> None:
        """Applies a fetch. `leader_end` is where the leader's log ended before the read."""
        self._take_caught_up_time(request.fetch_offset, leader_end, now_ms)
        self.log_end_offset = request.fetch_offset
        self.log_start_offset = request.log_start_offset
        self.broker_epoch = request.broker_epoch
        self._last_fetch_ms, self._end_at_last_fetch = now_ms, leader_end
        if request.leader_epoch != NO_EPOCH:  # else it may know of a newer one
            self.asked_ms = now_ms

    def on_session(self, fetched_ms: int) -> None:
        """Notes the last fetch of the session in which the follower waits for an answer.

        A follower that has all records names the partition once. Each further fetch of its session
        shows that it still asks for it.
        """
        if self.asked_ms is None or fetched_ms > self.asked_ms:
            self.asked_ms = fetched_ms

    def _take_caught_up_time(self, fetch_offset: int, leader_end: int, now_ms: int) -> None:
        """Notes when the follower had all of the leader's log.

        Under steady appends a fetch never reaches the leader's end of the same moment. One that
        reaches the end at the *previous* fetch shows that the follower had all of that moment.
        """
        if fetch_offset >= leader_end:
            caught_up_ms = now_ms
        elif self._end_at_last_fetch is not None and fetch_offset >= self._end_at_last_fetch:
            caught_up_ms = self._last_fetch_ms
        else:
            return
        if self.caught_up_ms is None or caught_up_ms > self.caught_up_ms:
            self.caught_up_ms = caught_up_ms

    def before_growth(self, leader_end: int, now_ms: int) -> None:
        """Notes that the follower had the whole log until now, if so; `leader_end` is about to move.

        A follower that has all records fetches once, and is answered when there is an update. So its last
        fetch may be long ago, and it begins to lag now.
        """
        if self.log_end_offset >= leader_end:
            self.caught_up_ms = now_ms

    def has_asked(self, now_ms: int, within_ms: int) -> bool:
        """Returns whether it has asked for the partition within a time, and not ended that since."""
        return self.asked_ms is not None and now_ms - self.asked_ms < within_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Returns whether it has the leader's log, or had it within `lag_time_max_ms`."""
        if self.log_end_offset == leader_end:
            return True
        return self.caught_up_ms is not None and now_ms - self.caught_up_ms <= lag_time_max_ms
