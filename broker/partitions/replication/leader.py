"""The leader of one partition in one leader epoch: events in, actions out.

A new epoch, even of the same broker, is a new `Leader`, which knows nothing of the former one.
Nothing is answered as leader before the lease of the broker's registration was checked. A leader
that is cut off from the coordinator, and that no in-sync replica follows, is suspended: it answers
followers alone until one of these is over. The rules are functions in `epochs.py`, `isr.py` and
`high_watermark.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import effective_min
from tidelog.broker.partitions.replication import epochs, high_watermark, isr
from tidelog.broker.partitions.replication.isr import InSyncReplicas
from tidelog.broker.partitions.replication.messages import (
    AdvanceHighWatermark,
    FetchAnswer,
    Resume,
    StepDown,
    Suspend,
    WakeFetches,
)
from tidelog.broker.partitions.replication.remote import RemoteReplica
from tidelog.protocol.errors import (
    ErrorCode,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.broker.lifecycle.lease import Lease
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.replication.messages import (
        Assignment,
        BrokerView,
        ChangeIsr,
        FetchRequest,
        LeaderAction,
        LeaderLog,
        LeaderRules,
    )

ACKS_ALL = -1


class Leader:
    """The leader's side of a partition."""

    def __init__(
        self,
        me: int,
        assignment: Assignment,
        log: LeaderLog,
        rules: LeaderRules,
        brokers: BrokerView,
        lease: Lease,
        now_ms: int,
    ) -> None:
        """Begins a leader epoch. `on_tick` has to follow: the high watermark may move at once.

        The ISR counts as caught up, and no follower's log end is known. The epoch starts where the log ends
        now. Whatever an earlier leader has committed is below that, as this replica was in the ISR; so it
        holds for a broker too that starts anew and still leads in the same epoch.
        """
        self.me = me
        self.leader_epoch = assignment.record.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        self.epochs = log.epochs
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = log.log_end_offset
        self.flushed_offset = log.flushed_offset
        self.high_watermark = log.high_watermark
        self.rules = rules
        self.brokers = brokers
        self._in_sync = InSyncReplicas(assignment)
        self.remotes = {
            broker: RemoteReplica(broker, now_ms if broker in self.isr else None)
            for broker in assignment.record.replicas
            if broker != me
        }
        self._lease = lease
        self._may_propose = True
        self.is_suspended = False
        """Whether it answers no client: another broker may lead by now."""
        self.suspensions = 0  # in this epoch
        self._end: str | None = None  # why it has stepped down
        self._has_returned_end = False

    @property
    def record(self) -> PartitionRecord:
        """The stored state of the partition, as far as this leader knows."""
        return self._in_sync.stored.record

    @property
    def isr(self) -> tuple[int, ...]:
        """The stored ISR: min.insync.replicas counts its members."""
        return self.record.isr

    @property
    def followers(self) -> tuple[RemoteReplica, ...]:
        """The other replicas, as their fetches show them."""
        return tuple(self.remotes.values())

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas that the high watermark waits for (KIP-497)."""
        return self._in_sync.maximal

    @property
    def min_isr(self) -> int:
        """The least size of the ISR, no more than there are replicas."""
        return effective_min(self.record, self.rules.min_insync)

    @property
    def fetchable_end(self) -> int:
        """Where ends what followers may fetch, and what this replica itself counts with.

        With flush.messages=1 that is what is flushed.
        """
        return self.flushed_offset if self.rules.needs_flush else self.log_end_offset

    @property
    def is_leading(self) -> bool:
        """Whether it has not stepped down."""
        return self._end is None

    def is_lease_overdue(self, now_ms: int) -> bool:
        """Returns whether the lease of this broker's registration may have ended."""
        return self._lease.is_overdue(now_ms)

    # --- fetches --------------------------------------------------------------------------------

    def on_fetch(
        self, request: FetchRequest, now_ms: int
    ) -> tuple[FetchAnswer, list[LeaderAction]]:
        """Handles a follower's fetch; the records of the answer are read afterwards.

        The leader's log end is noted before that read: otherwise steady appends would keep
        every follower behind.
        """
        if self._has_ended(now_ms):
            refusal = FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader_epoch)
            return refusal, self._stepping_down()
        answer = epochs.answer(self, request)
        if answer.error != ErrorCode.NONE or answer.diverging is not None:
            return answer, []
        remote = self.remotes[request.replica]
        remote.on_fetch(request, self.fetchable_end, now_ms)
        actions = [*self._join(remote, now_ms), *self._advance(now_ms)]
        if self.is_suspended:
            actions = [*self._update_suspension(now_ms), *actions]
        if answer.high_watermark != self.high_watermark:
            answer = answer._replace(high_watermark=self.high_watermark)
        return answer, actions

    def on_wake(self, request: FetchRequest, now_ms: int) -> FetchAnswer:
        """Answers a parked fetch. The answer is no new sign of the follower's life."""
        if self._has_ended(now_ms):
            return FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader_epoch)
        return epochs.answer(self, request)

    def on_session(self, replica: int, fetched_ms: int) -> None:
        """Notes the last fetch of the session in which a follower waits for an answer.

        The shell calls this before `on_tick` and `on_forgotten`, at least while the lease is overdue.
        """
        remote = self.remotes.get(replica)
        if remote is not None:
            remote.on_session(fetched_ms)

    def on_forgotten(self, replica: int, now_ms: int) -> list[LeaderAction]:
        """A follower asks for the partition no more: it follows another leader, or its session is over."""
        if self._has_ended(now_ms):
            return self._stepping_down()
        remote = self.remotes.get(replica)
        if remote is not None:
            remote.asked_ms = None
        return self._update_suspension(now_ms)

    def has_updates(self, request: FetchRequest) -> bool:
        """Returns whether a parked fetch is worth an answer: records, or a high watermark.

        A high watermark alone may wait for records to go with (KAFKA-9952).
        """
        if not self.is_leading or request.fetch_offset < self.fetchable_end:
            return True
        return min(self.high_watermark, request.fetch_offset) > request.high_watermark

    # --- the log --------------------------------------------------------------------------------

    def on_appended(self, log_end_offset: int, now_ms: int) -> list[LeaderAction]:
        """Handles an append, after which the log ends at an offset."""
        self._before_growth(now_ms)
        self.log_end_offset = log_end_offset
        return self._on_own_log(now_ms)

    def on_flushed(self, flushed_offset: int, now_ms: int) -> list[LeaderAction]:
        """Handles that the log is durable up to an offset."""
        self._before_growth(now_ms)
        self.flushed_offset = max(self.flushed_offset, flushed_offset)
        return self._on_own_log(now_ms)

    def _before_growth(self, now_ms: int) -> None:
        """Notes which members of the ISR had all that they could have until now."""
        end = self.fetchable_end
        for remote in self.remotes.values():
            if remote.broker in self.isr:
                remote.before_growth(end, now_ms)

    def on_log_start(self, log_start_offset: int) -> None:
        """Handles another log start, after retention or DeleteRecords."""
        self.log_start_offset = log_start_offset

    def _on_own_log(self, now_ms: int) -> list[LeaderAction]:
        if self._has_ended(now_ms):
            return self._stepping_down()
        return self._advance(now_ms) or [WakeFetches()]

    def _advance(self, now_ms: int) -> list[LeaderAction]:
        """Advances the high watermark, if it can; it never goes back."""
        offset = high_watermark.next_high_watermark(self, now_ms)
        if offset <= self.high_watermark:
            return []
        self.high_watermark = offset
        return [AdvanceHighWatermark(offset), WakeFetches()]

    # --- metadata -------------------------------------------------------------------------------

    def on_assignment(
        self, assignment: Assignment, brokers: BrokerView, rules: LeaderRules, now_ms: int
    ) -> list[LeaderAction]:
        """Handles a new image: the partition's stored state, the brokers, and the settings."""
        self.brokers, self.rules = brokers, rules
        return self._store(assignment, now_ms)

    def on_change_applied(self, assignment: Assignment, now_ms: int) -> list[LeaderAction]:
        """Handles the outcome of a ChangeIsr: it is stored, at the revision of the assignment."""
        return self._store(assignment, now_ms)

    def on_change_refused(
        self, change: ChangeIsr, assignment: Assignment | None, now_ms: int
    ) -> list[LeaderAction]:
        """Handles the outcome of a ChangeIsr: one of its conditions was false.

        `assignment` was read afterwards; None if the partition is gone. The next proposal waits for
        a tick, because the image may lag behind what was refused.
        """
        self._in_sync.refuse(change)
        self._may_propose = False
        if assignment is None:
            return self._step_down("the partition is gone")
        return self._store(assignment, now_ms)

    def on_change_unknown(self, change: ChangeIsr) -> None:
        """Handles a ChangeIsr that ended without an outcome: it may still be applied.

        Its members count on. The next tick settles it by another change on the same revision.
        """
        self._in_sync.keep(change)

    def _store(self, assignment: Assignment, now_ms: int) -> list[LeaderAction]:
        if self._has_ended(now_ms):
            return self._stepping_down()
        if not self._in_sync.store(assignment):
            return []
        record = assignment.record
        if record.leader != self.me or record.leader_epoch != self.leader_epoch:
            return self._step_down(f"broker {record.leader} leads in epoch {record.leader_epoch}")
        self.remotes = {
            broker: self.remotes.get(broker) or RemoteReplica(broker, None)
            for broker in record.replicas
            if broker != self.me
        }
        return self._advance(now_ms)

    # --- time -----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> list[LeaderAction]:
        """Handles what time has changed: the lease, followers that lag or left, unsettled proposals.

        Called at least twice in `lag_time_max_ms`, and at least every third of a lease: a longer
        silence may count as a pause in which the lease ended (`lease.py`).
        """
        if self._has_ended(now_ms):
            return self._stepping_down()
        self._may_propose = True
        return [
            *self._update_suspension(now_ms),
            *self._settle(isr.members_after_lag(self, now_ms)),
            *self._advance(now_ms),
        ]

    def _update_suspension(self, now_ms: int) -> list[LeaderAction]:
        """Suspends this leader, or resumes it, by what is known now.

        A leader is suspended while no renewal was confirmed for a lease time, another broker could be
        elected, and no in-sync replica has asked for the partition for as long in this epoch.
        """
        lease = self._lease
        is_suspended = (
            lease.is_overdue(now_ms)
            and isr.has_rival(self)
            and not isr.is_followed(self, now_ms, lease.duration_ms)
        )
        if is_suspended == self.is_suspended:
            return []
        self.is_suspended = is_suspended
        self.suspensions += is_suspended
        return [Suspend() if is_suspended else Resume()]

    def _settle(self, members: Collection[int]) -> list[LeaderAction]:
        """Proposes what the stored state should be, or settles an earlier proposal by it."""
        if self._in_sync.is_pending:
            return [self._propose(members)] if self._in_sync.needs_settling else []
        return (
            [] if isr.is_same(isr.changed(self, members), self.record) else [self._propose(members)]
        )

    def _join(self, remote: RemoteReplica, now_ms: int) -> list[LeaderAction]:
        """Proposes to add a follower that has just fetched, if it may join."""
        if not self._may_propose or self._in_sync.is_pending or remote.broker in self.isr:
            return []
        if not isr.may_join(self, remote, now_ms):
            return []
        return [self._propose([*self.isr, remote.broker])]

    def _propose(self, members: Collection[int]) -> ChangeIsr:
        return self._in_sync.propose(self, members)

    # --- the end --------------------------------------------------------------------------------

    def _has_ended(self, now_ms: int) -> bool:
        """Returns whether this leads no more. Asked before anything is answered."""
        if self._end is None and self._lease.is_lost(now_ms):
            self._end = "the lease of this broker's registration is gone"
        return self._end is not None

    def resign(self, reason: str) -> None:
        """Ends the epoch from outside: nothing is answered as leader, nor proposed, any more."""
        self._step_down(reason)

    def _step_down(self, reason: str) -> list[LeaderAction]:
        self._end = self._end or reason
        return self._stepping_down()

    def _stepping_down(self) -> list[LeaderAction]:
        """Returns StepDown, once."""
        if self._has_returned_end or self._end is None:
            return []
        self._has_returned_end = True
        return [StepDown(self._end)]

    # --- what clients ask -----------------------------------------------------------------------

    def check_leading(self, now_ms: int) -> None:
        """Checks any answer to a client that only the leader sends. Raises NotLeaderOrFollower."""
        if self._has_ended(now_ms):
            raise NotLeaderOrFollower
        if self.is_suspended:
            raise NotLeaderOrFollower(
                "the leader is cut off from the metadata: another may lead by now"
            )

    def check_append(self, acks: int, now_ms: int) -> None:
        """Checks an append before anything is appended.

        Raises NotLeaderOrFollower; with acks=all NotEnoughReplicas if the stored ISR is too small.
        """
        self.check_leading(now_ms)
        if acks == ACKS_ALL and len(self.isr) < self.min_isr:
            raise NotEnoughReplicas(
                f"the ISR has {len(self.isr)} members, min.insync.replicas asks for {self.min_isr}"
            )

    def acknowledgement(self, end_offset: int, now_ms: int, deadline_ms: int) -> ErrorCode | None:
        """Returns how to answer an append with acks=all that ends at an offset; None: not yet.

        After NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND and REQUEST_TIMED_OUT the
        records may be there all the same.
        """
        if self._has_ended(now_ms) or self.is_suspended:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if high_watermark.is_committed(self, end_offset):
            is_enough = len(self.maximal_isr) >= self.min_isr
            return ErrorCode.NONE if is_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.REQUEST_TIMED_OUT if now_ms >= deadline_ms else None

    def check_end_known(self, now_ms: int) -> None:
        """Checks a ListOffsets of the end, or of a time that no record below the end has (KIP-207).

        Raises NotLeaderOrFollower; OffsetNotAvailable while an earlier leader may have had a larger
        high watermark.
        """
        self.check_leading(now_ms)
        if not high_watermark.is_end_known(self):
            raise OffsetNotAvailable
