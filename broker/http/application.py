"""HTTP: /metrics for Prometheus, /healthz (process serves), /readyz (clients may connect), /v1; / lists all.

/readyz warns of a leap of the clock, and is 200 all the same; `readiness.py` has the reasons for 503. Other
routes answer while /readyz is 503, too.

The socket listens from the beginning. The modules and libraries behind it are imported, in a thread, when
the first request arrives. So a start does not wait for them, and a broker without HTTP clients does not
load them.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.broker.http.server import HttpLimits
    from tidelog.broker.http.services import Services

log = logging.getLogger("tidelog.http")

_MACHINE = socket.gethostname()
_TOO_MANY = "http.max.connections reached"
_SHUTDOWN_S = 3.0  # how long a stop waits for responses in progress


async def start_http(services: Services, listening: socket.socket) -> Any:
    """Waits for the first request on a listening socket, then serves it and all that follow.

    Returns the server, which the caller cleans up at the end.
    """
    await readable(listening)
    api, answers, index, readiness, serving, exposition, web, prometheus = [
        await services.pools.metrics.run(importlib.import_module, name, __package__)
        for name in (
            *(".api", ".answers", ".routes.index", ".readiness", ".server"),
            *(".metrics.exposition", "aiohttp.web", "prometheus_client"),
        )
    ]
    registry = prometheus.CollectorRegistry(auto_describe=False)
    for collector in ("ProcessCollector", "PlatformCollector"):
        getattr(prometheus, collector)(registry=registry)

    async def metrics(_request: Any) -> Any:
        # The text for ten thousand partitions takes long to build, so a thread does it.
        text = await services.pools.metrics.run(exposition.metrics_text, services, registry)
        return web.Response(body=text, headers={"Content-Type": prometheus.CONTENT_TYPE_LATEST})

    async def healthz(_request: Any) -> Any:
        return web.Response(text="ok\n")

    async def readyz(_request: Any) -> Any:
        found = [each.line for each in readiness.reasons(services)]
        warning = services.clock_watch.warning
        lines = (found or ["ready"]) + ([] if warning is None else [f"warning: {warning}"])
        text = "".join(f"{line}\n" for line in lines)
        return web.Response(text=text, status=503 if found else 200)

    def failed() -> None:
        services.metrics.unexpected_errors += 1

    server = serving.HttpServer(web, _limits(services))
    error_middleware = answers.error_middleware(web, log, index.PATHS, failed)
    app = web.Application(middlewares=[server.middleware(), error_middleware])
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    index.add_index(app, web, services)
    api.add_api(app, web, services)
    await server.start(app, listening, shutdown_timeout=_SHUTDOWN_S)
    return server


def _limits(services: Services) -> HttpLimits:
    from tidelog.broker.http.server import HttpLimits

    def most() -> int:
        return services.descriptors.http(services.settings.broker.http.http_max_connections)

    def note_refused(host: str) -> None:
        services.metrics.http_connections_refused += 1
        if services.connections.refusals.is_shown(host, _TOO_MANY, services.clock.monotonic_s()):
            log.warning("HTTP connection refused", extra={"host": host, "reason": _TOO_MANY})

    def names() -> frozenset[str]:
        advertised = (each.advertised[0] for each in services.listeners)
        known = (_MACHINE, *advertised, *services.settings.broker.http.http_allowed_hosts)
        return frozenset(map(str.lower, known))

    return HttpLimits(most, names, note_refused)


async def readable(listening: socket.socket) -> None:
    """Waits until a client connects."""
    loop = asyncio.get_running_loop()
    connected = loop.create_future()

    def on_readable() -> None:
        loop.remove_reader(listening)
        if not connected.done():
            connected.set_result(None)

    loop.add_reader(listening, on_readable)
    try:
        await connected
    finally:
        loop.remove_reader(listening)
