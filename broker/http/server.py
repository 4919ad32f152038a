"""How an HTTP port of the broker takes connections: a few at a time, for a bounded time, by known names.

A connection must send the whole head of its first request within `HEAD_TIMEOUT_S`, and the next one within
`KEEP_ALIVE_S` of an answer. Beyond a number of open connections new ones are closed at once. A request that
aiohttp cannot read is answered with 400, and is one line of the log.

If a page in a browser was served under a name that now resolves to this machine, the browser sends that
name as Host (DNS rebinding). So only plain addresses and known names are answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from broker.http.answers import Refused, is_address_or_local, line

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

HEAD_TIMEOUT_S: Final = 10.0
KEEP_ALIVE_S: Final = 75.0
_LINGERING_S = 1.0  # how long the rest of a body is read that no handler wanted
_LOOKS_PER_TIMEOUT = 10

log = logging.getLogger("tidelog.http")


class Limits(NamedTuple):
    """What a port allows: how many connections, and which Host names beside addresses and localhost.

    `names` is called for each request, `refused` for each connection too many.
    """

    connections: int
    names: Callable[[], frozenset[str]]
    refused: Callable[[], None]
    head_timeout_s: float = HEAD_TIMEOUT_S


class HttpServer:
    """One port: it makes the protocol of each connection, and checks each request."""

    def __init__(self, web: Any, limits: Limits) -> None:
        self._web = web
        self._limits = limits
        self._runner: Any = None
        self._server: asyncio.Server | None = None
        self._silent_since_s: dict[Any, float] = {}  # connections without a request so far
        self._look: asyncio.TimerHandle | None = None

    def middleware(self) -> Any:
        """Returns what answers known Host names alone, and no GET that has a body."""

        async def check(request: Any, handler: Any) -> Any:
            self._silent_since_s.pop(request.protocol, None)
            try:
                self._check(request)
            except Refused as refused:
                answer = {"error": refused.name, "message": str(refused)}
                return self._web.json_response(answer, status=refused.status, dumps=line)
            return await handler(request)

        return self._web.middleware(check)

    def _check(self, request: Any) -> None:
        host = request.headers.get("Host")
        if not is_address_or_local(host, self._limits.names()):
            raise Refused(
                403,
                "FORBIDDEN",
                f"Host: {host[:80]}: this name is not known here (http.allowed.hosts)",
            )
        if request.method in ("GET", "HEAD") and request.body_exists:
            raise Refused(400, "BAD_REQUEST", f"{request.method} takes no body")

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
        self._server = await loop.create_server(self._connect, sock=listening)

    async def cleanup(self) -> None:
        """Takes no more connections, and ends those that are there."""
        if self._look is not None:
            self._look.cancel()
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _connect(self) -> asyncio.BaseProtocol:
        if len(self._runner.server.connections) >= self._limits.connections:
            self._limits.refused()
            log.warning("HTTP connection refused: http.max.connections reached")
            return _Refused()
        protocol: asyncio.Protocol = self._runner.server()
        self._silent_since_s[protocol] = asyncio.get_running_loop().time()
        if self._look is None:
            self._look_later()
        return protocol

    def _look_later(self) -> None:
        wait_s = self._limits.head_timeout_s / _LOOKS_PER_TIMEOUT
        self._look = asyncio.get_running_loop().call_later(wait_s, self._close_silent)

    def _close_silent(self) -> None:
        self._look = None
        oldest_s = asyncio.get_running_loop().time() - self._limits.head_timeout_s
        # One that is not among the server's connections has ended, or is just being made.
        for protocol in [
            each for each, since_s in self._silent_since_s.items() if since_s < oldest_s
        ]:
            del self._silent_since_s[protocol]
            if protocol in self._runner.server.connections:
                protocol.force_close()
        if self._silent_since_s:
            self._look_later()


class _Refused(asyncio.Protocol):
    """A connection that is not served."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Closes it."""
        cast("asyncio.Transport", transport).abort()


def _without_traceback(record: logging.LogRecord) -> bool:
    """Makes one line of what aiohttp logs of a request that cannot be read."""
    error = record.exc_info[1] if record.exc_info else None
    if type(error).__module__ == "aiohttp.http_exceptions":
        reason = str(error).partition("\n")[2].strip().partition("\n")[0]
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = "HTTP request refused: %s", (reason,)
        record.exc_info = record.exc_text = None
    return True
