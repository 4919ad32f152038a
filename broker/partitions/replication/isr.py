"""The in-sync replicas of a partition, as its leader knows them: stored, and proposed.

A leader changes its ISR by one compare-and-set. Until the outcome is known, the replicas that are
in the stored or in the proposed ISR count together: the maximal ISR (KIP-497). An outcome that is
unknown is never settled by a read, because the change may still be applied later. It is settled by
another compare-and-set on the same revision, or by a newer revision of the key: revisions never
repeat, so no older proposal can be applied then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import elr_after
from tidelog.broker.partitions.replication.messages import ChangeIsr

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.replication.messages import Assignment


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

    __slots__ = ("_has_unknown", "_undecided", "_unknown", "maximal", "stored")

    def __init__(self, stored: Assignment) -> None:
        self.stored = stored
        self.maximal = frozenset(stored.record.isr)
        """The members of the stored and of every proposed ISR."""
        self._undecided: ChangeIsr | None = None  # its transaction has not returned
        self._has_unknown = False  # some returned without an outcome
        self._unknown: frozenset[int] = frozenset()  # their members

    @property
    def is_pending(self) -> bool:
        """Whether a proposal may still be applied."""
        return self._has_unknown or self._undecided is not None

    @property
    def needs_settling(self) -> bool:
        """Whether a proposal may still be applied, and no transaction is on its way."""
        return self._has_unknown and self._undecided is None

    def propose(self, record: PartitionRecord, added: Mapping[int, int]) -> ChangeIsr:
        """Returns the change to a record. Its members count from now on."""
        self._undecided = ChangeIsr(record, self.stored.mod_revision, added)
        self._count()
        return self._undecided

    def store(self, assignment: Assignment) -> bool:
        """Takes a stored state; returns False if a newer one is known.

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
        """Takes back a proposal that the coordinator has refused: it is certainly not applied."""
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
