"""What fetches need of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.replicas.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.fetches.sessions import FetchSessions


class Services(Below, Protocol):
    """What fetches need."""

    @property
    def fetch_sessions(self) -> FetchSessions: ...
