"""A process with a store: answers calls on a socket until it is killed. See `processes.py`."""

from __future__ import annotations

import asyncio
import mmap
import os
import pickle
import signal
import socket
import struct
from pathlib import Path

from tests.broker.metadata.contract.calls import Follower, perform
from tests.broker.metadata.contract.engines import KEPT, POLL_S
from tests.broker.metadata.contract.injected import injected
from tidelog.broker.metadata.sqlite.lease_clock import LeaseClock
from tidelog.broker.metadata.sqlite.store import SqliteStore

_SIZE = struct.Struct(">I")
_TIME = struct.Struct(">q")


def main(control_fd, inject):
    """Forks a process for each socket that arrives, until the other end closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets the ended at once
    with socket.socket(fileno=control_fd) as control, injected(inject):
        while True:
            path, sockets, _, _ = socket.recv_fds(control, 4096, 1)
            if not path:
                return
            pid = os.fork()
            if not pid:
                control.close()
                asyncio.run(serve(sockets[0], Path(path.decode())))
                os._exit(0)
            os.close(sockets[0])
            control.sendall(_SIZE.pack(pid))


async def serve(number, path):
    """Answers until the socket is closed."""
    with path.with_suffix(".clock").open("rb") as file:
        time = mmap.mmap(file.fileno(), _TIME.size, access=mmap.ACCESS_READ)
    clock = LeaseClock("test", lambda: _TIME.unpack_from(time)[0])
    store = SqliteStore(path, kept_revisions=KEPT, poll_interval_s=POLL_S, clock=clock)
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=number))
    await store.open()
    watch = None
    tasks = set()

    def answer(number, result):
        body = pickle.dumps((number, result))
        writer.write(_SIZE.pack(len(body)) + body)

    async def call(number, what):
        try:
            answer(number, await perform(store, what))
        except Exception as error:
            answer(number, error)

    while True:
        try:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        except asyncio.IncompleteReadError:
            return
        number, (name, *arguments) = pickle.loads(await reader.readexactly(size))
        if name == "call":
            tasks.add(asyncio.create_task(call(number, *arguments)))
        elif name == "follow":
            if watch is not None:
                await watch.stop()
            watch = Follower(store, *arguments)
            answer(number, None)
        else:
            answer(number, watch and watch.told())
