"""The services that handlers of requests use; `boot.py` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.coordinators.transactions.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.network.accepting.listener import Listener


class Services(Below, Protocol):
    """The services that handlers of requests use."""

    @property
    def http(self) -> Listener | None: ...
