"""A follower's fetch of one partition, which is not answered yet: from which offset the follower goes on.

A pending fetch waits with the leader of the partition (`PartitionLeader.parked`), or for the election of this
broker (`PendingElections`), until there is an update. Then the session of the follower answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.leading.pending_elections import PendingElections
    from tidelog.broker.partitions.replication import messages
    from tidelog.protocol.api.fetch import FetchPartition
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicIdPartition


class Session(Protocol):
    """The pending fetches of one follower."""

    fetched_ms: int

    @property
    def elections(self) -> PendingElections:
        """Where pending fetches wait for the election of this broker."""

    def wake(self, pending: PendingFetch, *, at_once: bool = True) -> None:
        """Marks that there may be an update."""


class PendingFetch:
    """A follower's fetch of one partition: from which offset the follower goes on.

    `led` is None if the partition is not led here; then `error` is the reason, unless the leader
    `is_coming`: sooner than the follower would ask again. The pending fetch `is_open` until it is answered,
    or the follower asks for the partition anew.
    """

    __slots__ = (
        "answer",
        "error",
        "is_coming",
        "is_judged",
        "is_open",
        "led",
        "name",
        "request",
        "session",
        "wanted",
    )

    def __init__(
        self,
        session: Session,
        name: TopicIdPartition,
        wanted: FetchPartition,
        request: messages.FetchRequest,
        led: PartitionLeader | None,
        error: type[BrokerError],
        *,
        is_coming: bool,
    ) -> None:
        """Passes the state of the follower's log to the leader of the partition."""
        self.session, self.name, self.wanted, self.request = session, name, wanted, request
        self.led, self.error, self.is_coming = led, error, is_coming
        self.is_open = True
        self.answer = None if led is None else led.on_fetch(request)
        self.is_judged = self.is_urgent()  # and answered before anything else happens

    @property
    def fetched_ms(self) -> int:
        """When the last fetch of the session came."""
        return self.session.fetched_ms

    def is_urgent(self) -> bool:
        """Returns whether the follower should be answered at once."""
        answer, request = self.answer, self.request
        if self.is_coming:
            return False
        if answer is None or answer.error or answer.diverging is not None:
            return True
        if request.fetch_offset < answer.log_end_offset:
            return True
        return request.log_start_offset < answer.log_start_offset

    @property
    def has_leader_state(self) -> bool:
        """Whether the answer has the state of the leader's log: no error, and the logs do not diverge."""
        answer = self.answer
        return answer is not None and not answer.error and answer.diverging is None

    def has_updates(self) -> bool:
        """Returns whether an answer brings records, an error, or a new log start or high watermark."""
        if self.is_urgent():
            return True
        return self.led is not None and self.led.leader.has_updates(self.request)

    def is_out_of_sync(self) -> bool:
        """Returns whether the follower is outside the ISR; it may join the ISR with its next fetch."""
        return self.led is not None and self.request.replica not in self.led.leader.isr

    def look_again(self) -> bool:
        """Passes the fetch to the leader again; returns whether the follower should be answered now."""
        if self.is_judged:
            return True
        if self.led is not None:
            self.answer = self.led.on_wake(self.request)
        return self.has_updates()

    def has_records(self) -> bool:
        """Returns whether the answer would bring records, and nothing is wrong."""
        answer = self.answer
        return (
            answer is not None
            and not answer.error
            and answer.diverging is None
            and self.request.fetch_offset < answer.log_end_offset
        )

    def hold(self) -> None:
        """Keeps the fetch pending, though there is an update: that is sent later, as it is then."""
        if self.is_judged:
            self.is_judged = False
            self.park()

    def wake(self) -> None:
        """Marks that there may be an update."""
        self.session.wake(self)

    def wake_soon(self) -> None:
        """Marks that there may be an update, which can wait for more."""
        self.session.wake(self, at_once=False)

    def park(self) -> None:
        """Waits with the leader, or for its election, until there is an update."""
        if self.led is not None:
            self.led.parked[self] = self.request
        elif self.is_coming:
            self.session.elections.park(self)

    def led_by(self, led: PartitionLeader) -> None:
        """Passes the fetch to the leader that has started since."""
        self.led, self.is_coming = led, False
        self.answer = led.on_fetch(self.request)
        self.park()
        if self.is_urgent():
            self.wake()
        elif self.has_updates():
            self.wake_soon()

    def does_not_come(self) -> None:
        """Answers that the partition is not led here: it was waited for long enough."""
        self.is_coming = False
        self.wake()

    def unpark(self) -> None:
        """Ends a pending fetch that is answered, or for whose answer nobody waits any more."""
        if self.led is not None:
            self.led.parked.pop(self, None)
        elif self.is_coming:
            self.session.elections.unpark(self)
