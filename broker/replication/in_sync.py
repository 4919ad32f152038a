"""The in-sync replicas of a partition, as its leader knows them: stored, and proposed.

A leader changes its ISR by one compare-and-set. Until the outcome is known, the replicas that are
in the stored or in the proposed ISR count together: the maximal ISR (KIP-497). An outcome that is
unknown is never settled by a read, because the change may still be applied later. It is settled by
another compare-and-set on the same revision, or by a newer revision of the key: revisions never
repeat, so no older proposal can be applied then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.eligible_leaders import elr_after
from broker.replication.messages import ChangeIsr

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from broker.metadata.records import PartitionRecord
    from broker.replication.messages import Assignment


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

    __slots__ = ("_proposals", "_undecided", "stored")

    def __init__(self, stored: Assignment) -> None:
        self.stored = stored
        self._proposals: list[ChangeIsr] = []  # all that may still be applied
        self._undecided: ChangeIsr | None = None  # the one whose transaction has not returned

    @property
    def maximal(self) -> frozenset[int]:
        """The members of the stored and of every proposed ISR."""
        proposed = (change.record.isr for change in self._proposals)
        return frozenset(self.stored.record.isr).union(*proposed)

    @property
    def is_pending(self) -> bool:
        """Whether a proposal may still be applied."""
        return bool(self._proposals)

    @property
    def needs_settling(self) -> bool:
        """Whether a proposal may still be applied, and no transaction is on its way."""
        return self.is_pending and self._undecided is None

    def propose(self, record: PartitionRecord, added: Mapping[int, int]) -> ChangeIsr:
        """Returns the change to a record. Its members count from now on."""
        change = ChangeIsr(record, self.stored.mod_revision, added)
        self._proposals.append(change)
        self._undecided = change
        return change

    def store(self, assignment: Assignment) -> bool:
        """Takes a stored state; returns False if a newer one is known.

        Metadata never goes back. Proposals on an older revision can no longer be applied.
        """
        revision = assignment.mod_revision
        if revision < self.stored.mod_revision:
            return False
        self.stored = assignment
        self._proposals = [each for each in self._proposals if each.mod_revision >= revision]
        if self._undecided not in self._proposals:
            self._undecided = None
        return True

    def refuse(self, change: ChangeIsr) -> None:
        """Takes back a proposal that the coordinator has refused: it is certainly not applied."""
        self._proposals = [each for each in self._proposals if each != change]
        self._return(change)

    def keep(self, change: ChangeIsr) -> None:
        """Keeps a proposal whose transaction ended without an outcome."""
        self._return(change)

    def _return(self, change: ChangeIsr) -> None:
        if self._undecided == change:
            self._undecided = None
