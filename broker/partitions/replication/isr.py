"""The in-sync replicas of a partition: who may be in the ISR, and the ISR as stored and as proposed.

Each rule is a function of its own, with its source, and changes nothing. `InSyncReplicas` is what a leader
has stored and proposed.

A leader changes its ISR by one compare-and-set. Until the outcome is known, the replicas that are
in the stored or in the proposed ISR count together: the maximal ISR (KIP-497). An outcome that is
unknown is never settled by a read, because the change may still be applied later. What settles it is
another compare-and-set on the same revision, or by a newer revision of the key: revisions never
repeat, so no older proposal can be applied then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import elr_after, may_advance
from tidelog.broker.partitions.replication.messages import ChangeIsr

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.replication.leader_view import LeaderView
    from tidelog.broker.partitions.replication.messages import Assignment
    from tidelog.broker.partitions.replication.remote import RemoteReplica


def with_isr(record: PartitionRecord, isr: Collection[int], min_insync: int) -> PartitionRecord:
    """Returns a record with another ISR, its members in their order, and its ELR (KIP-966)."""
    stay = [broker for broker in record.isr if broker in isr]
    join = [broker for broker in record.replicas if broker in isr and broker not in stay]
    members = (*stay, *join)
    return record._replace(isr=members, elr=elr_after(record, members, min_insync))


def is_same(one: PartitionRecord, other: PartitionRecord) -> bool:
    """Returns whether two states differ in nothing that a leader changes, but maybe in order."""
    return (
        set(one.isr) == set(other.isr)
        and set(one.elr) == set(other.elr)
        and one.is_recovering == other.is_recovering
    )


class InSyncReplicas:
    """The stored state of a partition, and changes of it whose outcome is not known."""

    __slots__ = ("_has_unknown", "_nonces", "_undecided", "_unknown", "maximal", "stored")

    def __init__(self, stored: Assignment) -> None:
        self.stored = stored
        self.maximal = frozenset(stored.record.isr)
        """The members of the stored and of every proposed ISR."""
        self._undecided: ChangeIsr | None = None  # its transaction has not returned
        self._has_unknown = False  # some returned without an outcome
        self._unknown: frozenset[int] = frozenset()  # their members
        self._nonces = 0

    @property
    def is_pending(self) -> bool:
        """Whether a proposal may still be applied."""
        return self._has_unknown or self._undecided is not None

    @property
    def needs_settling(self) -> bool:
        """Whether a proposal may still be applied, and no transaction is on its way."""
        return self._has_unknown and self._undecided is None

    def propose(self, leader: LeaderView, members: Collection[int]) -> ChangeIsr:
        """Returns the change to other members, which count from now on."""
        stored, registration = self.stored, leader.brokers.get(leader.me)
        self._nonces += 1
        epoch = registration and registration.epoch
        record = changed(leader, members)._replace(
            partition_epoch=stored.record.partition_epoch + 1,
            nonce=f"{leader.me}-{epoch}-{stored.mod_revision}-{self._nonces}",
        )
        joined = [broker for broker in record.isr if broker not in stored.record.isr]
        added = {broker: leader.remotes[broker].broker_epoch for broker in joined}
        self._undecided = ChangeIsr(record, stored.mod_revision, added)
        self._count()
        return self._undecided

    def store(self, assignment: Assignment) -> bool:
        """Applies a stored state; returns False if a newer one is known.

        Metadata never goes back. Proposals on an older revision can no longer be applied.
        """
        revision = assignment.mod_revision
        if revision < self.stored.mod_revision:
            return False
        if revision > self.stored.mod_revision:
            self._undecided, self._has_unknown, self._unknown = None, False, frozenset()
        self.stored = assignment
        self._count()
        return True

    def refuse(self, change: ChangeIsr) -> None:
        """Withdraws a proposal that the coordinator has refused: it is certainly not applied."""
        if self._undecided == change:
            self._undecided = None
            self._count()

    def keep(self, change: ChangeIsr) -> None:
        """Keeps a proposal whose transaction ended without an outcome."""
        if self._undecided == change:
            self._undecided, self._has_unknown = None, True
            self._unknown = self._unknown.union(change.record.isr)

    def _count(self) -> None:
        proposed = () if self._undecided is None else self._undecided.record.isr
        self.maximal = frozenset(self.stored.record.isr).union(self._unknown, proposed)


# --- the rules of a leader ---------------------------------------------------------------------------


def may_join(leader: LeaderView, remote: RemoteReplica, now_ms: int) -> bool:
    """Returns whether a follower has all that a member of the ISR must have.

    Its log end is from this leader epoch. Otherwise one that was removed, wiped and added
    again would join with the end that it once had.
    """
    return (
        has_committed(leader, remote)
        and has_reached_epoch(leader, remote)
        and is_eligible(leader, remote)
        and would_stay(leader, remote, now_ms)
    )


def has_committed(leader: LeaderView, remote: RemoteReplica) -> bool:
    """Returns whether it has all that this leader knows to be committed."""
    return remote.log_end_offset >= leader.high_watermark


def has_reached_epoch(leader: LeaderView, remote: RemoteReplica) -> bool:
    """Returns whether it has all that earlier leaders may have committed.

    A new leader's high watermark lags behind the true one; the start of its epoch does not.
    """
    return remote.log_end_offset >= leader.epoch_start_offset


def is_eligible(leader: LeaderView, remote: RemoteReplica) -> bool:
    """Returns whether its broker may be in an ISR: neither fenced nor stopping (KIP-841).

    The registration of its last fetch must be the one of now (KIP-903). A replica whose log has
    failed or whose disk is full cannot store what is appended next.
    """
    status = leader.brokers.get(remote.broker)
    return (
        status is not None
        and remote.broker not in leader.rules.cannot_store
        and not status.is_fenced
        and not status.is_stopping
        and remote.broker_epoch == status.epoch
    )


def would_stay(leader: LeaderView, remote: RemoteReplica, now_ms: int) -> bool:
    """Returns whether it would not fall out again at once (KAFKA-19996).

    A frozen high watermark is easily reached, but the log goes on.
    """
    return not is_frozen(leader) or is_caught_up(leader, remote, now_ms)


def is_caught_up(leader: LeaderView, remote: RemoteReplica, now_ms: int) -> bool:
    """Returns whether it has had the whole log within replica.lag.time.max.ms."""
    return remote.is_caught_up(leader.fetchable_end, now_ms, leader.rules.lag_time_max_ms)


def members_after_lag(leader: LeaderView, now_ms: int) -> list[int]:
    """Returns the ISR without those that have not been caught up for too long (KIP-16)."""
    return [
        broker
        for broker in leader.isr
        if broker == leader.me or is_caught_up(leader, leader.remotes[broker], now_ms)
    ]


def changed(leader: LeaderView, members: Collection[int]) -> PartitionRecord:
    """Returns the state with another ISR. A leader in office has recovered (KIP-704)."""
    record = with_isr(leader.record, members, leader.rules.min_insync)
    return record._replace(is_recovering=False)


def has_rival(leader: LeaderView) -> bool:
    """Returns whether another broker could be elected, as far as this leader knows."""
    record = leader.record
    able = record.replicas if leader.rules.allows_unclean else (*leader.maximal_isr, *record.elr)
    return any(broker != leader.me for broker in able)


def is_followed(leader: LeaderView, now_ms: int, within_ms: int) -> bool:
    """Returns whether a member of the maximal ISR has asked for the partition within a time.

    One that knows of a newer leader epoch asks no more. A replica outside the ISR shows nothing:
    another broker can be elected without it.
    """
    maximal = leader.maximal_isr
    return any(
        remote.has_asked(now_ms, within_ms)
        for remote in leader.remotes.values()
        if remote.broker in maximal
    )


def is_frozen(leader: LeaderView) -> bool:
    """Returns whether the high watermark may not move (KIP-966, KAFKA-15583)."""
    return not may_advance(leader.record, leader.rules.min_insync)


def preferred_read_replica(leader: LeaderView, brokers: Collection[int], offset: int) -> int | None:
    """Returns which of `brokers` a consumer should read from at an offset; None: the leader.

    An in-sync one whose log has the offset, or ends there (KIP-392). One that is out of sync
    would keep the consumer behind (KAFKA-14372). Of several the one whose log is longest, then
    the one that was caught up last (`RackAwareReplicaSelector` of Kafka).
    """
    able = [
        remote
        for broker in brokers
        if broker in leader.isr
        and (remote := leader.remotes.get(broker)) is not None
        and remote.log_start_offset <= offset <= remote.log_end_offset
    ]
    return max(able, key=_caught_up_most).broker if able else None


def _caught_up_most(remote: RemoteReplica) -> tuple[int, int, int]:
    """Returns what is larger for the replica that a consumer should rather read from."""
    caught_up_ms = -1 if remote.caught_up_ms is None else remote.caught_up_ms
    return remote.log_end_offset, caught_up_ms, remote.broker
