"""Stores on one file in processes of their own, which are killed with kill -9.

Processes are forks of one that has imported everything, so that a kill costs a millisecond. Each
answers calls on a socket. The time that leases end by is in a file which all of them map.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.broker.metadata.contract.engines import POLL_S
from tests.broker.metadata.contract.schedule import Lost

ROOT = Path(__file__).parents[4]
_SIZE = struct.Struct(">I")
_TIME = struct.Struct(">q")


class Nursery:
    """The process that forks the others."""

    def __init__(self, *, inject=""):
        ours, theirs = socket.socketpair()
        code = (
            "import sys; from tests.broker.metadata.contract.process import main; "
            "main(int(sys.argv[1]), sys.argv[2])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno()), inject],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        theirs.close()
        self._control = ours

    def fork(self, path):
        """The id of a new process with the store at a path, and the socket on which it answers."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [str(path).encode()], [theirs.fileno()])
        return _SIZE.unpack(self._control.recv(_SIZE.size))[0], ours

    def close(self):
        self._control.close()
        self._process.wait(20)


class Client:
    """One process, and the calls in progress."""

    def __init__(self, pid, reader, writer):
        self.pid = pid
        self._writer = writer
        self._answers = {}
        self._numbers = 0
        self._task = asyncio.create_task(self._hear(reader))

    async def ask(self, *request):
        self._numbers += 1
        number, answer = self._numbers, asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        body = pickle.dumps((number, request))
        if self._task.done():
            raise Lost
        self._writer.write(_SIZE.pack(len(body)) + body)
        return await answer

    async def kill(self):
        """Returns when the process is gone: the kernel has closed its socket."""
        if not self._task.done():
            os.kill(self.pid, signal.SIGKILL)
        await self._task
        self._writer.close()

    async def _hear(self, reader):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                number, answer = pickle.loads(await reader.readexactly(size))
                future = self._answers.pop(number)
                if future.done():
                    continue  # nobody waits for it any more
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(Lost())


class Processes:
    """Three processes with one file."""

    has_processes, has_troubles, has_service = True, False, False
    barriers = ()
    clients = range(3)

    def __init__(self, nursery, path):
        self._nursery, self._path = nursery, path
        self._clients = {}
        clock = path.with_suffix(".clock")
        clock.write_bytes(bytes(_TIME.size))
        with clock.open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), _TIME.size)

    async def open(self):
        for client in self.clients:
            await self.start(client)

    async def close(self):
        for client in self._clients.values():
            await client.kill()
        self._clock.close()

    async def start(self, client):
        pid, sock = self._nursery.fork(self._path)
        self._clients[client] = Client(pid, *await asyncio.open_unix_connection(sock=sock))

    async def kill(self, client, pause_s):
        await asyncio.sleep(pause_s)
        await self._clients[client].kill()

    async def stop(self, client, pause_s):
        await asyncio.sleep(pause_s)
        os.kill(self._clients[client].pid, signal.SIGSTOP)

    def go_on(self, client):
        os.kill(self._clients[client].pid, signal.SIGCONT)

    async def set_time(self, now_ms):
        _TIME.pack_into(self._clock, 0, now_ms)

    async def call(self, client, call):
        return await self._clients[client].ask("call", call)

    async def follow(self, client, after):
        await self._clients[client].ask("follow", after)

    async def told(self, client):
        return await self._clients[client].ask("told")

    async def let_watches_run(self):
        await asyncio.sleep(POLL_S)
