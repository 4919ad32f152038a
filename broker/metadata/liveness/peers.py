"""Sockets between the brokers of one directory, by which each notices at once that another died or committed.

Each broker listens on a Unix stream socket in the directory of the metadata and connects to the sockets
of the others. A byte means that its sender has committed. The end of a stream means that the peer may have
died; the lock on its id proves it. A lost byte or connection costs time only: watches also poll the file,
and a lease ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING, cast

from tidelog.broker.metadata.liveness.broker_lock import BrokerLock, is_held, known_ids
from tidelog.broker.metadata.store import MetadataError
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

log = logging.getLogger("tidelog.metadata")

_COMMITTED = b"."
_LONGEST_ID = 20
# A process that ends closes its sockets and releases its lock in any order, within moments.
_CONFIRM_TRIES, _CONFIRM_PAUSE_S = 100, 0.005
_CONFIRM_ROUNDS = 10  # a process that waits for a CPU, or for memory to be freed, ends more slowly


class Peers:
    """One broker's connections to the other brokers of a directory; all methods run on the loop."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        on_death: Callable[[int], Awaitable[None]],
    ) -> None:
        """`on_death` is called with the id of a broker whose process has ended."""
        self._lock = BrokerLock(directory, broker_id)
        self._directory, self.broker_id = directory, broker_id
        self._on_death = on_death
        self._on_commit: Callable[[], None] = lambda: None
        self._directory_descriptor = -1  # a descriptor of the directory
        self._server: asyncio.Server | None = None
        self._links: set[_PeerLink] = set()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # of confirming a death, by broker

    async def open(self, on_commit: Callable[[], None]) -> None:
        """Acquires the lock on this broker's id, listens, and connects to the others.

        `on_commit` is called when a peer has committed. Brokers that are dead already are reported
        too. Raises MetadataError, also if another process holds the lock on this broker's id.
        """
        self._on_commit = on_commit
        await self._lock.acquire()
        try:
            self._directory_descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            await self._listen()
            for other in self._others():
                await self._connect(other)
                self._confirm(other)
        except OSError as error:
            await self.close()
            raise MetadataError(f"cannot reach peers in {self._directory}: {error}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes the connections, and releases the lock on this broker's id last."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                self._socket_path(self.broker_id).unlink()
        for link in list(self._links):
            link.abort()
        if self._directory_descriptor >= 0:
            os.close(self._directory_descriptor)
            self._directory_descriptor = -1
        self._lock.release()

    def perhaps_dead(self) -> frozenset[int]:
        """Returns the brokers whose connection has ended, until their lock shows whether they died."""
        if not self._tasks:
            return frozenset()
        return frozenset(self._tasks).difference(link.broker_id for link in self._links)

    def notify_commit(self) -> None:
        """Wakes every peer after a commit."""
        for link in self._links:
            link.notify_commit()

    # -- called by links ------------------------------------------------------------------------

    def link_opened(self, link: _PeerLink) -> None:
        """Adds a connection whose broker id is known."""
        self._links.add(link)

    def link_lost(self, link: _PeerLink) -> None:
        """Removes a connection that has ended, and checks whether its broker has died."""
        self._links.discard(link)
        if self._server is not None and link.broker_id is not None:
            self._confirm(link.broker_id)

    def peer_committed(self) -> None:
        """Calls `on_commit` when a peer has committed."""
        self._on_commit()

    # -- connections ----------------------------------------------------------------------------

    async def _listen(self) -> None:
        path = self._socket_path(self.broker_id)
        path.unlink(
            missing_ok=True
        )  # of an earlier process, which has ended: this one has the lock
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self._address(self.broker_id))
        path.chmod(0o600)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _PeerLink(self), sock=listening)

    async def _connect(self, other: int) -> None:
        """Connects to a broker; does nothing if it does not listen, or its backlog is full."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(self._address(other))
        except OSError:
            sock.close()
            return
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: _PeerLink(self, other), sock=sock)

    def _confirm(self, other: int) -> None:
        if other not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._confirmed(other))
            self._tasks[other] = task
            task.add_done_callback(lambda _: self._tasks.pop(other, None))

    async def _confirmed(self, other: int) -> None:
        """Reports a broker that has died; connects again to one that has not."""
        try:
            for _ in range(_CONFIRM_ROUNDS):
                for _ in range(_CONFIRM_TRIES):
                    if any(link.broker_id == other for link in self._links):
                        return
                    if not is_held(self._directory, other):
                        await self._on_death(other)
                        return
                    await asyncio.sleep(_CONFIRM_PAUSE_S)
                await self._connect(other)
        except (BrokerError, OSError) as error:
            log.warning(
                "death of broker not confirmed, waiting for its lease to end",
                extra={"broker": other, "reason": str(error)},
            )

    def _others(self) -> Iterator[int]:
        return (other for other in known_ids(self._directory) if other != self.broker_id)

    def _socket_path(self, broker_id: int) -> Path:
        return self._directory / f"broker-{broker_id}.sock"

    def _address(self, broker_id: int) -> str:
        """Returns the address of a broker's socket.

        An address has at most 107 bytes (unix(7)), which a path may exceed; a path through a descriptor
        of the directory does not.
        """
        path = str(self._socket_path(broker_id))
        if not os.path.isdir(f"/proc/self/fd/{self._directory_descriptor}"):  # noqa: PTH112 - no Path is needed
            return path
        return f"/proc/self/fd/{self._directory_descriptor}/broker-{broker_id}.sock"


class _PeerLink(asyncio.Protocol):
    """One connection. The side that connects sends its id first; from then on each byte is a commit."""

    def __init__(self, peers: Peers, broker_id: int | None = None) -> None:
        """`broker_id` is the broker to which this one connects; None for one that connects."""
        self.broker_id = broker_id
        self._peers = peers
        self._transport: asyncio.Transport | None = None
        self._greeting = b""
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        if self.broker_id is not None:
            self._transport.write(b"%d\n" % self._peers.broker_id)
            self._peers.link_opened(self)

    def notify_commit(self) -> None:
        """Sends the byte of a commit, unless one is on its way to a peer that does not read."""
        if self._transport is not None and not self._transport.get_write_buffer_size():
            self._transport.write(_COMMITTED)

    def data_received(self, data: bytes) -> None:
        if self.broker_id is not None:
            self._peers.peer_committed()
            return
        self._greeting += data
        name, ends, _ = self._greeting.partition(b"\n")
        if len(name) > _LONGEST_ID or (ends and not name.isdigit()):
            self.abort()
        elif ends:
            self.broker_id = int(name)
            self._peers.link_opened(self)
            self._peers.peer_committed()  # commits may have followed at once, or preceded the connection

    def eof_received(self) -> None:
        """Reports the end of the stream at once; `connection_lost` comes some callbacks later."""
        self._report_lost()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._report_lost()

    def _report_lost(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._peers.link_lost(self)

    def abort(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            self._transport.abort()
