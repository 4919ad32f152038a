"""The HTTP ports of the other brokers of the cluster, as this one asks them.

Only brokers that are registered and have a session are asked, at the address in their session, for a path
below /v1 that this broker has read from a route of its own. No redirect is followed. A request names the
broker that asks (ASKED_BY); one that does so is never passed on, so no request goes in a circle. An answer
counts only if it names the broker that was meant, and its cluster (ANSWERED_BY): an address that means
another program here, as 127.0.0.1 does on another machine, is found out.

Each request takes a bounded time, and each broker gets a few at once. A client that leaves does not end what
was asked for it, so those in progress are bounded. No thread waits for them: two brokers
whose threads all waited for each other would wait for ever.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from tidelog.broker.http.answers import Refused
from tidelog.broker.network.accepting.listener import HTTP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.http.services import Services

ASKED_BY: Final = "Tidelog-Asked-By"
ANSWERED_BY: Final = "Tidelog-Broker"

_WITHIN_S = 60.0
_LONG_WITHIN_S = 300.0  # a diagnosis
_CONNECT_S = 5.0
_AT_ONCE = 4  # of each broker
_MOST_IN_PROGRESS = 256  # of all brokers, those that wait for a connection too
_MOST_BYTES = 64 << 20
_PIECE = 1 << 16


class NoAnswerError(Exception):
    """A broker has given no answer that counts; the text says why, after its name."""


class Answered(NamedTuple):
    """The answer of a broker, as its JSON is."""

    status: int
    text: bytes


def name_of(services: Services) -> str:
    """Returns what this broker calls itself in ANSWERED_BY."""
    return _name(services, services.metadata.node_id)


class Others:
    """The other brokers; `close` in the end. All methods run on the event loop."""

    def __init__(self, services: Services) -> None:
        """Connects to nothing yet."""
        self._services = services
        self._in_progress = 0
        self._sessions: dict[bool, ClientSession] = {}  # by whether the requests are long

    @contextmanager
    def asking(self, brokers: int) -> Iterator[None]:
        """Has room for a question to so many brokers. Raises Refused when too many are in progress."""
        if self._in_progress and self._in_progress + brokers > _MOST_IN_PROGRESS:
            raise Refused(503, "BUSY", "too many questions to other brokers are in progress")
        self._in_progress += brokers
        try:
            yield
        finally:
            self._in_progress -= brokers

    async def ask(self, broker: int, path: str, *, is_long: bool) -> Answered:
        """Asks a broker for a path with its query. Raises NoAnswerError."""
        live = self._services.metadata.image.brokers.get(broker)
        endpoints = () if live is None else live.record.endpoints
        at = next((each for each in endpoints if each.listener == HTTP), None)
        if live is None:
            raise NoAnswerError("has no session")
        if at is None:
            raise NoAnswerError("has no HTTP port (http.listener)")
        host = f"[{at.host}]" if ":" in at.host else at.host
        where = f"{host}:{at.port}"
        try:
            return await self._get(broker, where, path, is_long=is_long)
        except TimeoutError:
            raise NoAnswerError(f"gives no answer at {where} in time") from None
        except (ClientError, OSError, ValueError) as error:
            raise NoAnswerError(f"gives no answer at {where} ({error})") from None

    async def _get(self, broker: int, where: str, path: str, *, is_long: bool) -> Answered:
        url = URL(f"http://{where}{path}", encoded=True)
        headers = {ASKED_BY: str(self._services.metadata.node_id)}
        session = self._session(is_long=is_long)
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            named = answer.headers.get(ANSWERED_BY)
            if named is None:
                raise NoAnswerError(
                    f"runs an older version, which does not answer for it, or is not what is at {where}"
                )
            if named != _name(self._services, broker):
                raise NoAnswerError(f"is not what answers at {where}")
            text = bytearray()
            async for piece in answer.content.iter_chunked(_PIECE):
                text += piece
                if len(text) > _MOST_BYTES:
                    raise NoAnswerError(f"answers with more than {_MOST_BYTES} bytes")
            return Answered(answer.status, bytes(text))

    def _session(self, *, is_long: bool) -> ClientSession:
        session = self._sessions.get(is_long)
        if session is None:
            session = self._sessions[is_long] = ClientSession(
                connector=TCPConnector(limit_per_host=_AT_ONCE),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(
                    total=_LONG_WITHIN_S if is_long else _WITHIN_S, sock_connect=_CONNECT_S
                ),
            )
        return session

    async def close(self, _app: Any = None) -> None:
        """Ends the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()


def _name(services: Services, broker: int) -> str:
    return f"{services.metadata.image.cluster_id}/{broker}"
