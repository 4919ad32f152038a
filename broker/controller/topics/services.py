"""The services that changes of topics use; `boot.py` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.lifecycle.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.controller.topics.topics import Topics


class Services(Below, Protocol):
    """The services that changes of topics use."""

    @property
    def topics(self) -> Topics: ...

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now. Raises KafkaStorageError."""
