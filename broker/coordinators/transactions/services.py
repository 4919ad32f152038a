"""What the coordinator of transactions needs of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.coordinators.groups.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from tidelog.broker.coordinators.transactions.producer_ids import ProducerIds


class Services(Below, Protocol):
    """What the coordinator of transactions needs."""

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def transactions(self) -> TransactionCoordinator: ...
