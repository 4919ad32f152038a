"""What the leader of a partition knows in one leader epoch, and the rules by which it decides.

Each rule is a method of its own, with its source. None changes anything; `leader.py` takes the
events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import effective_min, may_advance
from tidelog.broker.partitions.replication.isr import InSyncReplicas, with_isr
from tidelog.broker.partitions.replication.messages import NO_EPOCH, NO_OFFSET, Diverging
from tidelog.broker.partitions.replication.remote import RemoteReplica
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.replication.messages import (
        Assignment,
        BrokerView,
        FetchRequest,
        LeaderLog,
        LeaderRules,
    )


class Leadership:
    """The state of a leader. Offsets, brokers and settings are as it was last told."""

    def __init__(
        self,
        me: int,
        assignment: Assignment,
        log: LeaderLog,
        rules: LeaderRules,
        brokers: BrokerView,
        now_ms: int,
    ) -> None:
        """Begins with the ISR counted as caught up, and no follower's log end known.

        The epoch starts where the log ends now. Whatever an earlier leader has committed is below
        that, as this replica was in the ISR; so it holds for a broker too that starts anew and
        still leads in the same epoch.
        """
        self._me = me
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
        self._remotes = {
            broker: RemoteReplica(broker, now_ms if broker in self.isr else None)
            for broker in assignment.record.replicas
            if broker != me
        }

    # --- what it is -----------------------------------------------------------------------------

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
        return tuple(self._remotes.values())

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

    # --- may a fetch count? In Kafka's order (Partition.fetchRecords) -----------------------------

    def _judge(self, request: FetchRequest) -> tuple[ErrorCode, Diverging | None]:
        """Returns the error of a follower's fetch, and where its log and the leader's part.

        With either the leader takes nothing from the fetch. A fetch of another leader epoch says
        nothing about this one, so that is looked at first. A follower below the log start has to
        restart even if its epochs diverge. The registration comes last.
        """
        error = self._judge_epoch(request) or self._judge_replica(request)
        if error:
            return error, None
        diverging = self._diverging_epoch(request)
        error = self._judge_offset(request, diverging)
        if error or diverging:
            return error, None if error else diverging
        return self._judge_registration(request), None

    def _judge_epoch(self, request: FetchRequest) -> ErrorCode:
        """Refuses a fetch of another leader epoch (KIP-320).

        FENCED_LEADER_EPOCH: the follower has to learn of this leader. UNKNOWN_LEADER_EPOCH: the
        leader has to learn of the follower's; it may lead no more.
        """
        if request.leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return ErrorCode.NONE
        if request.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _judge_replica(self, request: FetchRequest) -> ErrorCode:
        """Refuses a fetch of a broker that has no replica here.

        One that names the leader epoch asks again: this leader's assignment may be the older one.
        """
        if request.replica in self._remotes:
            return ErrorCode.NONE
        if request.leader_epoch == NO_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _diverging_epoch(self, request: FetchRequest) -> Diverging | None:
        """Returns the leader's epoch and its end, if the follower has another history (KIP-595).

        The epoch is named beside the offset: the leader may never have had the follower's epoch
        (KIP-279).
        """
        if request.last_fetched_epoch == NO_EPOCH:
            return None
        found = Diverging(*self.epochs.end_of(request.last_fetched_epoch))
        if found.epoch < request.last_fetched_epoch or found.end_offset < request.fetch_offset:
            return found
        return None

    def _judge_offset(self, request: FetchRequest, diverging: Diverging | None) -> ErrorCode:
        """Refuses an offset outside of the log, and an epoch that has no place in it."""
        if request.fetch_offset < self.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if diverging is not None:
            has_place = diverging.epoch != NO_EPOCH
            return ErrorCode.NONE if has_place else ErrorCode.OFFSET_OUT_OF_RANGE
        if request.fetch_offset > self.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _judge_registration(self, request: FetchRequest) -> ErrorCode:
        """Refuses a fetch that was sent before its broker registered anew (KIP-903)."""
        status = self.brokers.get(request.replica)
        if status is not None and request.broker_epoch < status.epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    # --- who is in the ISR ----------------------------------------------------------------------

    def _may_join(self, remote: RemoteReplica, now_ms: int) -> bool:
        """Returns whether a follower has all that a member of the ISR must have.

        Its log end is from this leader epoch. Otherwise one that was removed, wiped and added
        again would join with the end that it once had.
        """
        return (
            self._has_committed(remote)
            and self._has_reached_epoch(remote)
            and self._is_eligible(remote)
            and self._would_stay(remote, now_ms)
        )

    def _has_committed(self, remote: RemoteReplica) -> bool:
        return remote.log_end_offset >= self.high_watermark

    def _has_reached_epoch(self, remote: RemoteReplica) -> bool:
        """Returns whether it has all that earlier leaders may have committed.

        A new leader's high watermark lags behind the true one; the start of its epoch does not.
        """
        return remote.log_end_offset >= self.epoch_start_offset

    def _is_eligible(self, remote: RemoteReplica) -> bool:
        """Returns whether its broker may be in an ISR: neither fenced nor stopping (KIP-841).

        The registration of its last fetch must be the one of now (KIP-903). A replica whose log has
        failed or whose disk is full cannot store what is appended next.
        """
        status = self.brokers.get(remote.broker)
        return (
            status is not None
            and remote.broker not in self.rules.cannot_store
            and not status.is_fenced
            and not status.is_stopping
            and self._is_of_registration(remote, status.epoch)
        )

    def _is_of_registration(self, remote: RemoteReplica, broker_epoch: int) -> bool:
        return remote.broker_epoch == broker_epoch

    def _would_stay(self, remote: RemoteReplica, now_ms: int) -> bool:
        """Returns whether it would not fall out again at once (KAFKA-19996).

        A frozen high watermark is easily reached, but the log goes on.
        """
        return not self._is_frozen() or self._is_caught_up(remote, now_ms)

    def _is_caught_up(self, remote: RemoteReplica, now_ms: int) -> bool:
        return remote.is_caught_up(self.fetchable_end, now_ms, self.rules.lag_time_max_ms)

    def _members_after_lag(self, now_ms: int) -> list[int]:
        """Returns the ISR without those that have not been caught up for too long (KIP-16)."""
        return [
            broker
            for broker in self.isr
            if broker == self._me or not self._has_fallen_out(self._remotes[broker], now_ms)
        ]

    def _has_fallen_out(self, remote: RemoteReplica, now_ms: int) -> bool:
        return not self._is_caught_up(remote, now_ms)

    def _changed(self, members: Collection[int]) -> PartitionRecord:
        """Returns the state with another ISR. A leader in office has recovered (KIP-704)."""
        record = with_isr(self.record, members, self.rules.min_insync)
        return record._replace(is_recovering=False)

    # --- may another lead by now ----------------------------------------------------------------

    def _has_rival(self) -> bool:
        """Returns whether another broker could be elected, as far as this leader knows."""
        record = self.record
        able = record.replicas if self.rules.allows_unclean else (*self.maximal_isr, *record.elr)
        return any(broker != self._me for broker in able)

    def _is_followed(self, now_ms: int, within_ms: int) -> bool:
        """Returns whether a member of the maximal ISR has asked for the partition within a time.

        One that knows of a newer leader epoch asks no more. A replica outside the ISR shows nothing:
        another broker can be elected without it.
        """
        maximal = self.maximal_isr
        return any(
            remote.has_asked(now_ms, within_ms)
            for remote in self._remotes.values()
            if remote.broker in maximal
        )

    # --- the high watermark ---------------------------------------------------------------------

    def _high_watermark(self, now_ms: int) -> int:
        """Returns the smallest log end of the maximal ISR and of those about to join it.

        It may be less than before, and the caller then keeps the former one.

        One that has not fetched in this epoch has no known end, so nothing moves; nor has one whose
        registration this leader has not heard of.
        """
        if self._is_frozen():
            return self.high_watermark
        maximal = self.maximal_isr
        ends = [
            remote.log_end_offset if self._is_heard_of(remote) else NO_OFFSET
            for remote in self._remotes.values()
            if remote.broker in maximal or self._is_about_to_join(remote, now_ms)
        ]
        return min([self.fetchable_end, *ends])

    def _is_heard_of(self, remote: RemoteReplica) -> bool:
        """Returns whether this leader knows the registration of a follower's last fetch.

        A broker that has stopped uncleanly leaves the ISR before it registers anew (KIP-966). A leader
        that has not heard of the one has not heard of the other, and its ISR may be too large.
        """
        status = self.brokers.get(remote.broker)
        return status is not None and remote.broker_epoch <= status.epoch

    def _is_frozen(self) -> bool:
        """Returns whether the high watermark may not move (KIP-966, KAFKA-15583)."""
        return not may_advance(self.record, self.rules.min_insync)

    def _is_about_to_join(self, remote: RemoteReplica, now_ms: int) -> bool:
        """Returns whether the high watermark waits for a follower that is not in the ISR yet.

        One that may not join would hold the high watermark for nothing (KAFKA-15021).
        """
        return self._is_eligible(remote) and self._is_caught_up(remote, now_ms)

    # --- what clients wait for ------------------------------------------------------------------

    def preferred_read_replica(self, brokers: Collection[int], offset: int) -> int | None:
        """Returns which of `brokers` a consumer should read from at an offset; None: this leader.

        An in-sync one whose log has the offset, or ends there (KIP-392). One that is out of sync
        would keep the consumer behind (KAFKA-14372). Of several the one whose log is longest, then
        the one that was caught up last (`RackAwareReplicaSelector` of Kafka).
        """
        able = [
            remote
            for broker in brokers
            if broker in self.isr
            and (remote := self._remotes.get(broker)) is not None
            and remote.log_start_offset <= offset <= remote.log_end_offset
        ]
        return max(able, key=_caught_up_most).broker if able else None

    def _has_enough_to_append(self) -> bool:
        return len(self.isr) >= self.min_isr

    def _has_enough_to_acknowledge(self) -> bool:
        return len(self.maximal_isr) >= self.min_isr

    def _is_committed(self, end_offset: int) -> bool:
        return self.high_watermark >= end_offset

    def _is_end_known(self) -> bool:
        """Returns whether the high watermark is no less than any earlier leader's (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset


def _caught_up_most(remote: RemoteReplica) -> tuple[int, int, int]:
    """Returns what is larger for the replica that a consumer should rather read from."""
    caught_up_ms = -1 if remote.caught_up_ms is None else remote.caught_up_ms
    return remote.log_end_offset, caught_up_ms, remote.broker
