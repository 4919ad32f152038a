"""The transactional ids that a coordinator holds, and which broker coordinates which.

Until an id's partition of __transaction_state has been read, requests for it raise
COORDINATOR_LOAD_IN_PROGRESS; if another broker leads that partition, NOT_COORDINATOR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.broker.clock import FIRST_MS
from tidelog.broker.coordination.coordinating import Coordinating
from tidelog.broker.coordination.ownership import NO_EPOCH
from tidelog.broker.transactions import state_topic
from tidelog.broker.transactions.patterns import Patterns
from tidelog.broker.transactions.refusals import Refusals
from tidelog.protocol.errors import InvalidRequest, PolicyViolation
from tidelog.protocol.group_errors import CoordinatorLoadInProgress, CoordinatorNotAvailable

if TYPE_CHECKING:
    import asyncio

    from tidelog.broker.transactions.services import Services
    from tidelog.broker.transactions.transaction import Transaction


@dataclass(slots=True, eq=False)
class Kept:
    """A transactional id, and the epoch in which it was loaded or created."""

    transaction: Transaction
    epoch: int = NO_EPOCH
    settled: set[asyncio.Future[None]] = field(default_factory=set)  # who wait for the end
    not_before_ms: int = FIRST_MS  # the next deadline, after what could not be stored
    has_timed_out: bool = False  # the abort that is being stored is for that


class TransactionRegistry(Coordinating[state_topic.Known]):
    """The transactional ids of one broker."""

    _services: Services

    def __init__(self, services: Services) -> None:
        """Begins with no ids."""
        super().__init__(
            services, state_topic.declared(services.config.transactions), services.clock
        )
        self.kept: dict[str, Kept] = {}
        self.refusals = Refusals(services.clock, services.metrics)
        self.patterns = Patterns()

    def is_coordinated_here(self, transactional_id: str) -> bool:
        """Whether the metadata say that this broker coordinates an id."""
        if self._services.cluster is None:
            return True
        try:
            return self.topic.leader_of(transactional_id) == self._services.metadata.node_id
        except CoordinatorNotAvailable:
            return False

    def find(self, transactional_id: str | None) -> Transaction | None:
        """Returns what is known of an id; None for one that has never been initialised.

        Raises InvalidRequest for no id, NotCoordinator, CoordinatorLoadInProgress and
        CoordinatorNotAvailable.
        """
        kept = self._find(transactional_id)
        return None if kept is None or kept.transaction.is_new else kept.transaction

    def all(self) -> list[Transaction]:
        """Returns every id. Raises CoordinatorLoadInProgress until all have been read."""
        if self.ownership.is_loading:
            raise CoordinatorLoadInProgress("the transactional ids are being read")
        return [
            each.transaction for each in list(self.kept.values()) if not each.transaction.is_new
        ]

    def open_producers(self, most: int) -> list[int] | None:
        """Returns the producer ids whose transactions have not ended.

        Returns None while ids are being read, and if there are more than `most`.
        """
        try:
            found = [each.metadata.producer_id for each in self.all() if each.is_open]
        except CoordinatorLoadInProgress:
            return None
        return found if len(found) <= most else None

    def _find(self, transactional_id: str | None) -> Kept | None:
        if not transactional_id:
            raise InvalidRequest("a transactional id is needed")
        self._epoch_of(transactional_id)
        return self.kept.get(transactional_id)

    def _check_room(self) -> None:
        """Raises PolicyViolation if no more ids may be coordinated here."""
        most = self._services.config.transactions.max_transactional_ids
        if len(self.kept) >= most:
            raise PolicyViolation(f"this broker has max.transactional.ids={most}")

    def _epoch_of(self, transactional_id: str) -> int:
        return self.topic.epoch_of(transactional_id)

    def forget(self, kept: Kept) -> None:
        """Drops an id, unless it is another of its name by now."""
        if self.is_kept(kept):
            del self.kept[kept.transaction.transactional_id]

    def is_kept(self, kept: Kept) -> bool:
        """Whether an id is still the one of its name here."""
        return self.kept.get(kept.transaction.transactional_id) is kept
