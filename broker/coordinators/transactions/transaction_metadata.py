"""What a coordinator has in memory of a transactional id, beside its state machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.broker.clock import FIRST_MS
from tidelog.broker.coordinators.ownership import NO_EPOCH

if TYPE_CHECKING:
    import asyncio

    from tidelog.broker.coordinators.transactions.transaction import Transaction


@dataclass(slots=True, eq=False)
class TransactionMetadata:
    """A transactional id, and the coordinator epoch in which it was loaded or created."""

    transaction: Transaction
    epoch: int = NO_EPOCH
    settled: set[asyncio.Future[None]] = field(default_factory=set)  # who wait for the end
    not_before_ms: int = FIRST_MS  # the next deadline, after what could not be stored
    has_timed_out: bool = False  # the abort that is being stored is for that

    @property
    def key(self) -> str:
        """The transactional id."""
        return self.transaction.transactional_id
