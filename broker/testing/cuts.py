"""Network partitions for tests: cuts a broker off from other brokers, and from the metadata store.

A cut between brokers is made in the connections that this broker opens: bytes are held on both sides, like
unacknowledged TCP segments, and a new connection is not answered. A test cuts both brokers; then no bytes
pass in either direction. When the cut is healed, the held bytes are delivered, unless the connection was
closed meanwhile.

A cut from the metadata is made around their store: a call has no effect and fails after `GIVE_UP_S`, and the
watch returns no change. The sockets by which brokers of one machine notice a death are not cut.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from tidelog.client import async_connection
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.store import Change, Compare, KeyValueStore, Operation, Snapshot

_POLL_S = 0.01
GIVE_UP_S = 1.0


class Cuts:
    """The cuts of one broker. Changed on the event loop; other threads may read them."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        """Wraps the metadata store and the dialling of brokers; made before either is used."""
        self.brokers: frozenset[int] = frozenset()
        self.metadata = False
        self._known = metadata
        self.lines: set[_CutConnection] = set()
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
        line = _CutConnection(make(), (host, port), self.lines)
        try:
            await asyncio.get_running_loop().create_connection(lambda: line, host, port, **options)
        except BaseException:
            # uvloop calls no `connection_lost` for a connection that is cancelled when it is just made.
            self.lines.discard(line)
            raise
        if self.is_cut(line.address):  # since it was dialled
            line.hold()
        return line.inner


class _CutConnection(asyncio.BufferedProtocol):
    """A protocol between a transport and the client's protocol, which holds bytes while there is a cut."""

    def __init__(self, inner: Any, address: tuple[str, int], lines: set[_CutConnection]) -> None:
        self.inner = inner
        self.address = address
        self.lines = lines
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] | None = None
        self._is_over = False

    def hold(self) -> None:
        """Holds all bytes from now on."""
        if self._waiting is None and self._transport is not None:
            self._waiting = []
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def release(self) -> None:
        """Passes bytes on again, the held ones first."""
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
        """Stores the transport, and is the transport of the client's protocol."""
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
        """Passes on the end of the connection."""
        self.lines.discard(self)
        if not self._is_over:
            self._is_over = True
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Passes the call on."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Passes the call on."""
        self.inner.resume_writing()

    # -- what the protocol calls ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Sends bytes, or holds them during a cut."""
        if self._waiting is not None:
            self._waiting.append(bytes(data))
        elif self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Closes this end of the connection; during a cut the other end does not notice."""
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
        """Waits until the store is not cut off. Raises KafkaStorageError after `GIVE_UP_S`."""
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

    async def check_complete(self) -> None:
        await self._reach()
        await self._store.check_complete()

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
