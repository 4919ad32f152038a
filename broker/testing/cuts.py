"""Cuts a broker off from other brokers, and from the metadata, without a word to either side.

A cut between brokers is made in the connections that this broker opens: bytes wait on both sides, as
those of TCP do that nobody acknowledges, and a new connection is not answered. Each of the two
brokers has to be told; then nothing passes in either direction. When the cut is healed, what
waited arrives, unless the connection was given up meanwhile.

A cut from the metadata is made in the contract of their store: a call has no effect and fails after a
while, and no change is seen. The sockets by which brokers of one machine notice a death are not cut.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from tidelog.broker.http.answers import HttpError
from tidelog.client import async_connection
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.store import Change, Compare, KeyValueStore, Operation, Snapshot

_POLL_S = 0.01
GIVE_UP_S = 1.0


class Cuts:
    """What one broker is cut off from. Changed on the event loop; other threads may read it."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        """Puts itself between the broker and the others; it must be there before they are used."""
        self.brokers: frozenset[int] = frozenset()
        self.metadata = False
        self._known = metadata
        self.lines: set[_Line] = set()
        metadata.store = _CutStore(metadata.store, self)
        async_connection.dial_by(self._dial)

    def add(self, broker: int) -> None:
        """Cuts the connections to a broker, and those that are opened from now on."""
        self.brokers |= {broker}
        for line in self.lines:
            if self.is_cut(line.address):
                line.hold()

    def heal(self, broker: int | None = None) -> None:
        """Heals the cut from one broker, or from all and from the metadata."""
        self.brokers = frozenset() if broker is None else self.brokers - {broker}
        if broker is None:
            self.metadata = False
        for line in list(self.lines):
            if not self.is_cut(line.address):
                line.release()

    def is_cut(self, address: tuple[str, int]) -> bool:
        """Returns whether a broker that is cut off listens on an address, by the metadata."""
        sessions = self._known.image.brokers
        return any(
            (at.host, at.port) == address
            for broker in self.brokers
            if broker in sessions
            for at in sessions[broker].record.endpoints
        )

    async def _dial(self, make: Callable[[], Any], host: str, port: int, **options: Any) -> Any:
        while self.is_cut((host, port)):  # noqa: ASYNC110 - nobody else ever waits for it
            await asyncio.sleep(_POLL_S)
        line = _Line(make(), (host, port), self.lines)
        try:
            await asyncio.get_running_loop().create_connection(lambda: line, host, port, **options)
        except BaseException:
            # uvloop tells its protocol nothing of a connection that is given up when it is just made.
            self.lines.discard(line)
            raise
        if self.is_cut(line.address):  # since it was dialled
            line.hold()
        return line.inner


class _Line(asyncio.BufferedProtocol):
    """A connection between the transport and its protocol, which bytes pass unless it is held."""

    def __init__(self, inner: Any, address: tuple[str, int], lines: set[_Line]) -> None:
        self.inner = inner
        self.address = address
        self.lines = lines
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] | None = None
        self._is_over = False

    def hold(self) -> None:
        """Lets nothing pass from now on."""
        if self._waiting is None and self._transport is not None:
            self._waiting = []
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def release(self) -> None:
        """Lets everything pass again, also what has waited."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or self._transport is None:
            return
        if self._is_over:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.writelines(waiting)
            self._transport.resume_reading()

    # -- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport, and stands before it."""
        self._transport = cast("asyncio.Transport", transport)
        self.lines.add(self)
        self.inner.connection_made(self)

    def get_buffer(self, sizehint: int) -> Any:
        """Returns the protocol's buffer."""
        return self.inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Passes on received bytes."""
        self.inner.buffer_updated(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """Passes on the end."""
        self.lines.discard(self)
        if not self._is_over:
            self._is_over = True
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Passes it on."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Passes it on."""
        self.inner.resume_writing()

    # -- what the protocol calls ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Sends bytes, or lets them wait."""
        if self._waiting is not None:
            self._waiting.append(bytes(data))
        elif self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Closes this end of the connection. The other end is not told while the brokers are cut off."""
        if self._waiting is None:
            if self._transport is not None:
                self._transport.abort()
        elif not self._is_over:
            self._is_over = True
            asyncio.get_running_loop().call_soon(self.inner.connection_lost, None)


class _CutStore:
    """A metadata store behind a connection that can be cut."""

    def __init__(self, store: KeyValueStore, cuts: Cuts) -> None:
        self._store = store
        self._cuts = cuts

    async def _reach(self) -> None:
        """Returns when the store can be reached. Raises KafkaStorageError after a while."""
        deadline_s = time.monotonic() + GIVE_UP_S
        while self._cuts.metadata:
            if time.monotonic() >= deadline_s:
                raise KafkaStorageError("the metadata do not answer (cut off by a test)")
            await asyncio.sleep(_POLL_S)

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def read(self, prefix: str = "") -> Snapshot:
        await self._reach()
        return await self._store.read(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        await self._reach()
        return await self._store.transact(compares, operations)

    async def grant(self, ttl_ms: int) -> int:
        await self._reach()
        return await self._store.grant(ttl_ms)

    async def keep_alive(self, lease: int) -> bool:
        await self._reach()
        return await self._store.keep_alive(lease)

    async def why_no_writes(self) -> str | None:
        await self._reach()
        return await self._store.why_no_writes()

    async def revoke(self, lease: int) -> None:
        await self._reach()
        await self._store.revoke(lease)

    async def changes(self, after: int) -> list[Change]:
        await self._reach()
        return await self._store.changes(after)

    async def watch(self, after: int) -> AsyncIterator[list[Change]]:
        async for changes in self._store.watch(after):
            while self._cuts.metadata:  # noqa: ASYNC110 - as above
                await asyncio.sleep(_POLL_S)
            yield changes
