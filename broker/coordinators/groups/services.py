"""What the coordinator of groups needs of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.coordinators.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.coordinators.groups.coordinator import GroupCoordinator


class Services(Below, Protocol):
    """What the coordinator of groups needs."""

    @property
    def coordinator(self) -> GroupCoordinator: ...
