"""Limits the connections of an HTTP port of the broker: their number, their time, and their Host names.

A connection must send the whole head of its first request within `HEAD_TIMEOUT_S`, and the next one within
`KEEP_ALIVE_S` of an answer. `slots.py` decides which connections are accepted beyond a number. A request
that aiohttp cannot parse is answered with 400, and logged in one line.

If a page in a browser was served under a name that now resolves to this machine, the browser sends that
name as Host (DNS rebinding). So only plain addresses and known names are answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tidelog.broker.http.answers import HttpError, is_address_or_local, json_line
from tidelog.broker.http.slots import HEALTH_PATHS, SlotKind, Slots

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

HEAD_TIMEOUT_S: Final = 10.0
KEEP_ALIVE_S: Final = 75.0
_LINGERING_S = 1.0  # how long the rest of a body is read that no handler wanted
_CHECKS_PER_TIMEOUT = 10

log = logging.getLogger("tidelog.http")


class HttpLimits(NamedTuple):
    """The limits of a port: its number of connections, and the Host names beside addresses and localhost.

    `connections` is called for each connection, `names` for each request, and `refused` with the address
    of each connection that is refused.
    """

    connections: Callable[[], int]
    names: Callable[[], frozenset[str]]
    refused: Callable[[str], None]
    head_timeout_s: float = HEAD_TIMEOUT_S


class HttpServer:
    """One port: accepts connections, makes the protocol of each, and checks each request."""

    def __init__(self, web: Any, limits: HttpLimits) -> None:
        self._web = web
        self._limits = limits
        self._runner: Any = None
        self._server: asyncio.Server | None = None
        self.slots: Slots[Any] = Slots()
        self._idle_check: asyncio.TimerHandle | None = None

    def middleware(self) -> Any:
        """Returns a middleware that refuses unknown Host names, and GET and HEAD with a body."""

        async def check(request: Any, handler: Any) -> Any:
            kind = self.slots.begin(request.protocol)
            try:
                self._check(request, kind)
                answer = await handler(request)
            except HttpError as refused:
                said = {"error": refused.name, "message": str(refused)}
                answer = self._web.json_response(said, status=refused.status, dumps=json_line)
            finally:
                self.slots.end(request.protocol, asyncio.get_running_loop().time())
            if kind is not SlotKind.USUAL:
                answer.force_close()
            return answer

        return self._web.middleware(check)

    def _check(self, request: Any, kind: SlotKind) -> None:
        if kind is SlotKind.HEALTH and request.path not in HEALTH_PATHS:
            raise HttpError(503, "BUSY", "http.max.connections reached: health alone is answered")
        host = request.headers.get("Host")
        if not is_address_or_local(host, self._limits.names()):
            raise HttpError(
                403,
                "FORBIDDEN",
                f"Host: {host[:80]}: this name is not known here (http.allowed.hosts)",
            )
        if request.method in ("GET", "HEAD") and request.body_exists:
            raise HttpError(400, "BAD_REQUEST", f"{request.method} takes no body")

    async def start(self, app: Any, listening: socket.socket, **options: Any) -> None:
        """Serves an application, which has the middleware, on a listening socket."""
        requests = logging.getLogger("tidelog.http.requests")
        requests.addFilter(_without_traceback)
        self._runner = self._web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=_LINGERING_S,
            logger=requests,
            **options,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Gate(self._admit), sock=listening)

    async def cleanup(self) -> None:
        """Stops listening, and closes the open connections."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _admit(self, transport: asyncio.Transport) -> None:
        """Serves a new connection, or closes it."""
        peer = transport.get_extra_info("peername")
        if peer is None:  # it was reset before it was accepted
            transport.abort()
            return
        now_s, host = asyncio.get_running_loop().time(), peer[0]
        self.slots.retain(set(self._runner.server.connections))
        taken = self.slots.acquire(host, self._limits.connections(), now_s)
        if taken is None:
            self._limits.refused(host)
            transport.abort()
            return
        if taken.evicted is not None:
            self._close(taken.evicted)
        protocol: asyncio.Protocol = self._runner.server()
        self.slots.put(protocol, host, taken.kind, now_s)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._idle_check is None:
            self._schedule_idle_check()

    def _close(self, protocol: Any) -> None:
        self.slots.remove(protocol)
        protocol.force_close()

    def _schedule_idle_check(self) -> None:
        wait_s = self._limits.head_timeout_s / _CHECKS_PER_TIMEOUT
        self._idle_check = asyncio.get_running_loop().call_later(wait_s, self._close_unused)

    def _close_unused(self) -> None:
        self._idle_check = None
        self.slots.retain(set(self._runner.server.connections))
        oldest_s = asyncio.get_running_loop().time() - self._limits.head_timeout_s
        for protocol in self.slots.without_request(oldest_s):
            self._close(protocol)
        if self.slots.has_unused:
            self._schedule_idle_check()


class _Gate(asyncio.Protocol):
    """A new connection, whose address is not known yet."""

    def __init__(self, admit: Callable[[asyncio.Transport], None]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Passes the connection on, now that its address is known."""
        self._admit(cast("asyncio.Transport", transport))


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shortens what aiohttp logs of a request that it cannot parse to one line."""
    error = record.exc_info[1] if record.exc_info else None
    if type(error).__module__ == "aiohttp.http_exceptions":
        reason = str(error).partition("\n")[2].strip().partition("\n")[0]
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = "HTTP request refused", ()
        record.__dict__["reason"] = reason
        record.exc_info = record.exc_text = None
    return True
