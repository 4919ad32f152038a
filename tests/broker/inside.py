"""A broker inside the test's own process: real sockets, and a disk and parts that the test may swap.

For what cannot be seen from outside: when exactly something was synced, and a disk that fails on demand.
Everything else is tested with a process of its own (subject.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING

from tests.broker.finding import Client
from tests.broker.subject import page_at
from tidelog.broker.boot import Services
from tidelog.broker.clock import SystemClock
from tidelog.broker.controller.topics.startup import open_topics
from tidelog.broker.coordinators.ownership import Load, Ownership, Phase
from tidelog.broker.http.application import start_http
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.connection import Connection
from tidelog.config import BrokerConfig
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any, Self

    from tests.oracle import wire
    from tidelog.broker.clock import Clock

_PATIENCE_S = 60


def begin_to_read(ownership: Ownership) -> list[Load]:
    """Begins to read every partition again, as after a suspension; returns what is to be read."""
    loads: list[Load] = []
    for index, each in ownership._partitions.items():
        each.phase = Phase.AWAITED
        loads += ownership._load_if_led(index)
    return loads


class Inside:
    """One broker on an event loop in a thread, while the `with` lasts."""

    def __init__(
        self, directory: Path, clock: Clock | None = None, config: BrokerConfig | None = None
    ) -> None:
        self.directory = directory
        self.config = config or BrokerConfig()
        self.clock = clock or SystemClock()
        self.node: Services
        self.bootstrap = self.http = ""
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        # A loop of its own in a thread: the test and its clients block beside it.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE_S), "the broker did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "the broker does not stop"

    def connect(self) -> wire.Connection:
        """A raw client."""
        return Client(self.bootstrap, timeout_s=_PATIENCE_S)

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` returns on the event loop."""

        async def on_loop() -> Any:
            return work()

        return self.run(on_loop())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine returns on the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    def page(self, path: str) -> tuple[int, str]:
        """Status and body at a path of its HTTP port."""
        return page_at(self.http, path)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        config = self.config
        metadata = local_metadata(self.directory / "tidelog.sqlite")
        await metadata.open()
        store = LogStore([self.directory], default_config=config.topic_defaults)
        node = self.node = Services(config, self.clock, store, metadata, Metrics())
        await open_topics(node)
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        listener = Listener("PLAINTEXT", "127.0.0.1", port, ("127.0.0.1", port))
        server = await self._loop.create_server(partial(Connection, node, listener), sock=listening)
        http_socket = socket.create_server(("127.0.0.1", 0))
        http_socket.setblocking(False)
        http = asyncio.ensure_future(start_http(node, http_socket))
        self.bootstrap = f"127.0.0.1:{port}"
        await node.cluster.start([listener])
        self.http = f"127.0.0.1:{http_socket.getsockname()[1]}"
        node.ready = True
        node.coordinator.start()
        node.transactions.start()
        self._ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(node.connections):
            connection.abort()
        if http.done():
            await http.result().cleanup()
        else:
            http.cancel()
            await asyncio.wait([http])
            http_socket.close()
        await node.coordinator.stop()
        await node.transactions.stop()
        node.scheduler.close()
        await asyncio.to_thread(node.pools.stop)
        await asyncio.sleep(0)
        with contextlib.suppress(KafkaStorageError):  # a log that is offline says so once more
            store.close()
        await metadata.close()
