"""Sends requests to the HTTP ports of the other brokers of the cluster.

A request goes only to a broker that is registered and has a session, to the address in its session, for a
path below /v1 that is one of the routes. No redirect is followed. A request names the broker that sends it
(ASKED_BY); such a request is never forwarded, so no request goes in a circle. An answer is accepted only if
it names the expected broker and cluster (ANSWERED_BY): so another program at the address, as at 127.0.0.1 of
another machine, is detected.

Each request has a time limit, and each broker gets a few at once. A client that disconnects does not end the
requests that were sent for it, so their number is limited. No thread waits for them: two brokers whose
threads all waited for each other would wait for ever.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from tidelog.broker.http.answers import HttpError
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
    """A broker has returned no valid answer; the text is the reason, to follow the broker's name."""


class BrokerAnswer(NamedTuple):
    """The answer of a broker: its HTTP status and the bytes of its JSON."""

    status: int
    text: bytes


def name_of(services: Services) -> str:
    """Returns the name of this broker in ANSWERED_BY: cluster id and broker id."""
    return _name(services, services.metadata.node_id)


class HttpPeers:
    """The other brokers; `close` in the end. All methods run on the event loop."""

    def __init__(self, services: Services) -> None:
        """Connects to nothing yet."""
        self._services = services
        self._in_progress = 0
        self._sessions: dict[bool, ClientSession] = {}  # by whether the requests are long

    @contextmanager
    def reserving(self, brokers: int) -> Iterator[None]:
        """Counts requests to so many brokers. Raises HttpError when too many are in progress."""
        if self._in_progress and self._in_progress + brokers > _MOST_IN_PROGRESS:
            raise HttpError(503, "BUSY", "too many questions to other brokers are in progress")
        self._in_progress += brokers
        try:
            yield
        finally:
            self._in_progress -= brokers

    async def ask(self, broker: int, path: str, *, is_long: bool) -> BrokerAnswer:
        """Sends a GET for a path with its query to a broker. Raises NoAnswerError."""
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

    async def _get(self, broker: int, where: str, path: str, *, is_long: bool) -> BrokerAnswer:
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
            return BrokerAnswer(answer.status, bytes(text))

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
