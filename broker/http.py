"""HTTP: /metrics for Prometheus, /healthz (the process serves), /readyz (clients may connect).

The libraries are imported after the broker is ready, in a thread: a start must not wait for them. The
socket listens from the beginning, so an early request waits instead of being refused.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Any

from broker.metrics import Collector

if TYPE_CHECKING:
    import socket

    from broker.node import Node

log = logging.getLogger("tidelog.http")


async def start_http(node: Node, listening: socket.socket) -> Any:
    """Serve on a listening socket; returns the runner, to be cleaned up at the end."""
    web = await asyncio.to_thread(importlib.import_module, "aiohttp.web")
    prometheus = await asyncio.to_thread(importlib.import_module, "prometheus_client")
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(Collector(node))
    for collector in ("ProcessCollector", "PlatformCollector"):
        getattr(prometheus, collector)(registry=registry)

    async def metrics(_request: Any) -> Any:
        text = prometheus.generate_latest(registry)
        return web.Response(body=text, headers={"Content-Type": prometheus.CONTENT_TYPE_LATEST})

    async def healthz(_request: Any) -> Any:
        return web.Response(text="ok\n")

    async def readyz(_request: Any) -> Any:
        if node.ready:
            return web.Response(text="ready\n")
        return web.Response(text="not ready\n", status=503)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    return runner
