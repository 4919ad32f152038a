"""The sessions of the followers that fetch from this broker: one for each connection."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.partitions.fetch.followers.session import FollowerSession
from tidelog.broker.partitions.fetch.session_epochs import SESSIONLESS

if TYPE_CHECKING:
    from tidelog.broker.network.context import ClientConnection
    from tidelog.broker.partitions.fetch.followers.session import SessionContext
    from tidelog.protocol.api.fetch import FetchRequest


class FollowerSessions:
    """The sessions of followers, by connection."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._sessions: dict[ClientConnection, FollowerSession] = {}

    def of(self, connection: ClientConnection, request: FetchRequest) -> FollowerSession:
        """Returns what the follower at the other end of a connection asks for."""
        if request.session_epoch == SESSIONLESS:
            return FollowerSession(self._context)
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = FollowerSession(self._context)
            connection.on_lost = partial(self._left, connection)
        return session

    def _left(self, connection: ClientConnection) -> None:
        self._sessions.pop(connection).close()
