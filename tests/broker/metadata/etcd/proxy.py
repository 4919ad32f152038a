"""A TCP proxy before one member of etcd: it loses answers, and cuts connections."""

from __future__ import annotations

import asyncio
import contextlib

_TURNS = 10  # of the event loop


class Proxy:
    """Passes bytes both ways, from `start` until `close`, in the loop of the test."""

    def __init__(self, endpoint, port=0):
        """Listens on a port of 127.0.0.1; on a free one, if that is 0."""
        self._own_port = port
        self._host, _, self._port = endpoint.rpartition(":")
        self._server = None
        self._writers = set()
        self._tasks = set()
        self._is_closed_to_all = False
        self.loses_answers = False

    @property
    def endpoint(self):
        """HOST:PORT, for clients."""
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def start(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._own_port)

    async def close(self):
        self._server.close()
        self._is_closed_to_all = True
        for _ in range(_TURNS):  # a connection may be accepted already, and not here yet
            self.drop()
            await asyncio.sleep(0)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def drop(self):
        """Ends all connections; what is on its way is lost."""
        for writer in self._writers:
            writer.transport.abort()

    def cut(self):
        """Ends all connections, and takes no new ones until `heal`."""
        self._is_closed_to_all = True
        self.drop()

    def heal(self):
        self._is_closed_to_all = False
        self.loses_answers = False

    def _accept(self, reader, writer):
        # At once, so that `close` sees it.
        self._writers.add(writer)
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader, writer):
        upstream = None
        try:
            if self._is_closed_to_all:
                return
            answers, upstream = await asyncio.open_connection(self._host, int(self._port))
            self._writers.add(upstream)
            pumps = [
                asyncio.create_task(self._pump(reader, upstream, is_answers=False)),
                asyncio.create_task(self._pump(answers, writer, is_answers=True)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for each in pumps:
                each.cancel()
            await asyncio.wait(pumps)
        except OSError:  # the member is down
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            for each in (writer, upstream):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _pump(self, source, sink, *, is_answers):
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if not (is_answers and self.loses_answers):
                    sink.write(data)
                    await sink.drain()
