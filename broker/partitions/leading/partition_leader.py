"""A partition that this broker leads, in one leader epoch: the machine's actions on the real log.

All that changes the ISR comes by here: fetches, time, new metadata, and the outcomes of `isr_changes.py`.

The machine decides before anything is answered as leader. Appends, flushes and new log starts are passed
to the machine. A thread may have appended, and the loop not know it yet; so what the machine knows of the
log is updated before each follower's fetch, or a follower could be ahead of it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.partitions.leading.acknowledgements import Acknowledgements, refusal
from tidelog.broker.partitions.replication.high_watermark import low_watermark as low_watermark_of
from tidelog.broker.partitions.replication.messages import (
    AdvanceHighWatermark,
    ChangeIsr,
    Resume,
    StepDown,
    Suspend,
    WakeFetches,
)
from tidelog.broker.timer import timeout
from tidelog.protocol.errors import ErrorCode, RequestTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.broker.logging.folded_log import FoldedLog
    from tidelog.broker.partitions.leading.isr_changes import IsrChanges
    from tidelog.broker.partitions.leading.leaders import Leaders
    from tidelog.broker.partitions.leading.shared_reads import SharedReads
    from tidelog.broker.partitions.purgatory import Purgatory
    from tidelog.broker.partitions.replication.leader import Leader
    from tidelog.broker.partitions.replication.messages import (
        Assignment,
        BrokerView,
        FetchAnswer,
        FetchRequest,
        LeaderAction,
        LeaderRules,
    )
    from tidelog.protocol.topic_partition import TopicIdPartition
    from tidelog.storage.log.partition import Appended, Partition


class ParkedFetch(Protocol):
    """A follower's fetch of a partition, until there is an update for it."""

    @property
    def fetched_ms(self) -> int:
        """When the last fetch came of the session that asks."""

    def wake(self) -> None:
        """Makes the session answer at once, if there is an update."""

    def wake_soon(self) -> None:
        """Makes the session answer in a while, if there is an update."""


@dataclass(slots=True)
class LeaderContext:
    """What all partition leaders of a broker use."""

    leaders: Leaders[PartitionLeader]
    purgatory: Purgatory
    isr_changes: IsrChanges
    shared_reads: SharedReads
    folded: FoldedLog
    now_ms: Callable[[], int]  # monotonic


class PartitionLeader:
    """The leader of a partition, around its log."""

    __slots__ = (
        "_context",
        "_fetched",
        "_logged_isr",
        "_waiting",
        "is_stopped",
        "leader",
        "name",
        "parked",
        "partition",
    )

    def __init__(
        self,
        context: LeaderContext,
        name: TopicIdPartition,
        partition: Partition,
        leader: Leader,
    ) -> None:
        """The log leads already, in the machine's leader epoch."""
        self._context = context
        self.name = name
        self.partition = partition
        self.leader = leader
        self.is_stopped = False
        self.parked: dict[ParkedFetch, FetchRequest] = {}
        self._logged_isr = leader.isr
        self._waiting: Acknowledgements | None = None  # producers, once one has waited
        self._fetched: asyncio.Future[None] | None = None  # done with the next fetch

    @property
    def is_leading(self) -> bool:
        """Whether the machine has not stepped down."""
        return self.leader.is_leading

    # --- what the machine wants -------------------------------------------------------------------

    def do(self, actions: Sequence[LeaderAction]) -> None:
        """Carries out actions, in their order."""
        for action in actions:
            if isinstance(action, AdvanceHighWatermark):
                self._advance(action.offset)
            elif isinstance(action, WakeFetches):
                self._wake()
            elif isinstance(action, ChangeIsr):
                self._context.isr_changes.propose(self, action)
            elif isinstance(action, StepDown):
                self.stop(action.reason)
            elif isinstance(action, Suspend):
                self._refuse_waiting()
                self._context.leaders.suspended(self)
            elif isinstance(action, Resume):
                self._context.leaders.resumed(self)

    def _advance(self, offset: int) -> None:
        state = self.partition.state
        with state.append_lock:
            state.advance_high_watermark(offset)
        self._context.purgatory.advanced(self.partition)
        if self._waiting:
            self._waiting.advanced()

    def _wake(self) -> None:
        """Wakes the fetches for which there is an update: records at once, the rest a little later."""
        leader = self.leader
        for fetch, request in self.parked.items():
            if request.fetch_offset < leader.fetchable_end:
                fetch.wake()
            elif leader.has_updates(request):
                fetch.wake_soon()

    def stop(self, reason: str) -> None:
        """Stops leading: everybody who waits is answered, and the log deletes nothing by itself."""
        self.is_stopped = True
        self._context.folded.add(
            logging.INFO,
            "partition leaders stopped",
            self._log_name,
            {"epoch": self.leader.leader_epoch},
            reason=reason,
        )
        self.leader.resign(reason)
        self.partition.roles.resign()
        self._context.leaders.stopped(self)
        self._context.shared_reads.forget(self)
        if self._waiting is not None:
            self._waiting.close()
        self._refuse_waiting()
        # Else they would wait for a sync of records that the next role may cut.
        self._context.purgatory.refuse(self.partition, refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for fetch in list(self.parked):
            fetch.wake()

    def _refuse_waiting(self) -> None:
        """Answers the clients that wait: this leader does nothing for them any more, or for now."""
        self._note_fetch()
        if self._waiting is not None:
            self._waiting.refuse_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._context.purgatory.wake(self.partition)

    # --- the in-sync replicas -----------------------------------------------------------------------

    def assigned(self, assignment: Assignment, brokers: BrokerView, rules: LeaderRules) -> None:
        """Passes the state of the partition in an image to the machine."""
        self._follow_isr(
            self.leader.on_assignment(assignment, brokers, rules, self._context.now_ms())
        )

    def isr_changed(self, assignment: Assignment) -> None:
        """Passes on that a proposed change is stored, at the revision of the assignment."""
        self._follow_isr(self.leader.on_change_applied(assignment, self._context.now_ms()))

    def isr_refused(self, change: ChangeIsr, assignment: Assignment | None) -> None:
        """Passes on that a proposed change is certainly not stored, and what is."""
        now_ms = self._context.now_ms()
        self._follow_isr(self.leader.on_change_refused(change, assignment, now_ms))

    def isr_unknown(self, change: ChangeIsr) -> None:
        """Passes on that a proposed change may be stored."""
        self.leader.on_change_unknown(change)

    def _follow_isr(self, actions: Sequence[LeaderAction]) -> None:
        self._log_isr()
        self.do(actions)

    def _log_isr(self) -> None:
        """Logs the in-sync replicas when others are stored, by whatever way that became known."""
        before, now = self._logged_isr, self.leader.isr
        if now != before and self.leader.is_leading:
            self._logged_isr = now
            self._context.folded.add(
                logging.INFO,
                "in-sync replicas changed",
                self._log_name,
                {"isr": list(now)},
                joined=tuple(sorted({*now}.difference(before))),
                left=tuple(sorted({*before}.difference(now))),
            )

    @property
    def _log_name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    # --- the log ----------------------------------------------------------------------------------

    def appended(self) -> None:
        """Passes to the machine where the log ends after an append, and up to where it is durable.

        A checkpoint may have made the log durable before the loop knows of an append in a thread.
        Then no sync comes that would call `flushed`.
        """
        self.do(self.leader.on_appended(self.partition.state.ends[0], self._context.now_ms()))
        self._note_durable()

    def note_append(self, appended: Appended) -> None:
        """Counts an append when it can be read, and notes the log's end.

        An append in a thread may be readable already: a request has brought this leader up to date before.
        """
        self._context.purgatory.note_append(self.partition, appended)
        self.appended()

    def flushed(self) -> None:
        """Passes to the machine up to where the log is durable."""
        offset = min(self.partition.durable_offset, self.partition.log_end_offset)
        self.do(self.leader.on_flushed(offset, self._context.now_ms()))

    def _bring_up_to_date(self) -> None:
        """Passes to the machine what threads have done to the log."""
        state, leader = self.partition.state, self.leader
        if state.version.log_start_offset != leader.log_start_offset:
            leader.on_log_start(state.version.log_start_offset)
        if state.ends[0] != leader.log_end_offset:
            self.appended()
        else:
            self._note_durable()

    def _note_durable(self) -> None:
        leader = self.leader
        if leader.rules.needs_flush and self.partition.durable_offset > leader.flushed_offset:
            self.flushed()

    # --- followers --------------------------------------------------------------------------------

    def on_fetch(self, request: FetchRequest) -> FetchAnswer:
        """Handles a follower's fetch, and returns the answer."""
        self._bring_up_to_date()
        answer, actions = self.leader.on_fetch(request, self._context.now_ms())
        if self._fetched is not None:
            self._note_fetch()
        if actions:
            self.do(actions)
            if not self.leader.is_leading:
                return self.leader.on_wake(request, self._context.now_ms())
        return answer

    def on_forgotten(self, replica: int) -> None:
        """Notes that a follower fetches the partition no more, on one of its connections."""
        if all(request.replica != replica for request in self.parked.values()):
            self._note_sessions()
            self.do(self.leader.on_forgotten(replica, self._context.now_ms()))

    def tick(self) -> None:
        """Passes the time to the machine."""
        self._note_sessions()
        self.do(self.leader.on_tick(self._context.now_ms()))

    def _note_sessions(self) -> None:
        """Brings up to date which followers ask, where the machine may depend on that."""
        if self.leader.is_lease_overdue(self._context.now_ms()):
            for fetch, request in self.parked.items():
                if request.leader_epoch == self.leader.leader_epoch:
                    self.leader.on_session(request.replica, fetch.fetched_ms)

    def on_wake(self, request: FetchRequest) -> FetchAnswer:
        """Returns the answer to a parked fetch."""
        self._bring_up_to_date()
        return self.leader.on_wake(request, self._context.now_ms())

    async def deleted_everywhere(self, offset: int, timeout_ms: int) -> int:
        """Waits until the live replicas have deleted what is before an offset.

        Returns the smallest log start of all. Raises NotLeaderOrFollower and RequestTimedOut.
        """
        self._bring_up_to_date()
        for fetch in self.parked:
            fetch.wake()
        try:
            async with timeout(max(timeout_ms, 0) / 1000):
                while (low_watermark := low_watermark_of(self.leader)) < offset:
                    self.leader.check_leading(self._context.now_ms())
                    if self._fetched is None:
                        self._fetched = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._fetched)
        except TimeoutError:
            raise RequestTimedOut("not all live replicas have deleted the records yet") from None
        return low_watermark

    def _note_fetch(self) -> None:
        """Wakes the requests that wait for followers to report their logs."""
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            fetched.set_result(None)

    # --- producers --------------------------------------------------------------------------------

    def acknowledged(
        self, appended: Appended, timeout_ms: int
    ) -> Appended | asyncio.Future[Appended]:
        """Returns an append when it has the acks of all, or a future of that.

        Raises NotLeaderOrFollower, NotEnoughReplicasAfterAppend and RequestTimedOut, or the future does.
        """
        now_ms = self._context.now_ms()
        deadline_ms = now_ms + max(timeout_ms, 0)
        code = self.leader.acknowledgement(appended.last_offset + 1, now_ms, deadline_ms)
        if code == ErrorCode.NONE:
            return appended
        if code is not None:
            raise refusal(code)
        if self._waiting is None:
            self._waiting = Acknowledgements(self.leader, self._context.now_ms)
        return self._waiting.wait(appended, deadline_ms)

    def check_append(self, acks: int) -> None:
        """Checks an append; see `Leader`."""
        self.leader.check_append(acks, self._context.now_ms())

    def check_leading(self) -> None:
        """Checks an answer that only the leader sends; see `Leader.check_leading`."""
        self.leader.check_leading(self._context.now_ms())
