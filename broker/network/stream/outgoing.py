"""Answers on their way to one peer: what is sent at once, and what is streamed as the peer reads.

A batch too large to be held (`storage/log/large_batch.py`) is read in slices of `SLICE_BYTES`, each when
those before it have left. So a peer that does not read holds a slice, and not the batch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, cast

from tidelog.storage.log.large_batch import LargeBatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from tidelog.broker.network.memory.share import Share
    from tidelog.protocol.wire import Buffer

SLICE_BYTES: Final = 64 << 10
UNREAD_S: Final = 30.0  # how long a peer may read nothing while others wait for the memory
_TURN_BYTES = 1 << 20  # streamed before other connections have their turn


class Outgoing:
    """The answers of one connection that have not been sent, or are counted as unread."""

    __slots__ = ("_counted", "_position", "_seen", "_share", "_streamed", "is_paused", "transport")

    def __init__(self, share: Share) -> None:
        self.transport: asyncio.Transport | None = None  # while there is a connection
        self.is_paused = False  # the transport's buffer is full
        self._share = share
        self._counted = 0
        self._streamed: deque[Buffer | LargeBatch] = deque()  # what follows the last bytes sent
        self._position = 0  # in the first of them
        # Since which time of the monotonic clock the peer has left so many bytes unread.
        self._seen: tuple[float, int] | None = None

    @property
    def is_streaming(self) -> bool:
        """Whether something is left to be streamed."""
        return bool(self._streamed)

    @property
    def is_free(self) -> bool:
        """Whether the peer reads its answers, and nothing is left to be streamed."""
        return not (self.is_paused or self._streamed)

    @property
    def may_send(self) -> bool:
        """Whether there is a peer, which reads its answers."""
        return not (self.is_paused or self._streamed) and self.transport is not None

    def write(
        self, transport: asyncio.WriteTransport, parts: Sequence[Buffer | LargeBatch]
    ) -> None:
        """Sends buffers; those from a large batch on are left to `stream`."""
        for number, part in enumerate(parts):
            if type(part) is LargeBatch:
                self._streamed.extend(parts[number:])
                parts = parts[:number]
                break
        transport.writelines(cast("Sequence[Buffer]", parts))

    def stream(self, transport: asyncio.WriteTransport) -> None:
        """Sends the next slices, until the peer does not read or others have their turn.

        Raises OSError if the file cannot be read.
        """
        left_bytes = _TURN_BYTES
        while self._streamed and not self.is_paused and left_bytes > 0:
            part = self._streamed[0]
            if isinstance(part, LargeBatch):
                data: Buffer = part.read(self._position, SLICE_BYTES)
                self._position += len(data)
                is_sent = self._position == len(part)
            else:
                data, is_sent = part, True
            if is_sent:
                self._streamed.popleft()
                self._position = 0
            left_bytes -= len(data)
            transport.write(data)

    def has_stalled(self, unread_bytes: int, now_s: float) -> bool:
        """Returns whether the peer reads nothing of what others wait for the memory of."""
        if not (self.is_paused and self._counted and self._share.waiting):
            self._seen = None
            return False
        if self._seen is None or self._seen[1] != unread_bytes:
            self._seen = now_s, unread_bytes
        return now_s - self._seen[0] > UNREAD_S

    def holds_deleted(self) -> bool:
        """Returns whether a file is held that has been deleted, while the peer does not read."""
        if not (self.is_paused and self._streamed):
            return False
        part = self._streamed[0]
        try:
            return isinstance(part, LargeBatch) and part.is_deleted
        except OSError:
            return True

    def count(self, unread_bytes: int) -> None:
        """Notes how many bytes the peer has not read."""
        if unread_bytes > self._counted:
            self._share.add(unread_bytes - self._counted)
        elif unread_bytes < self._counted:
            self._share.release(self._counted - unread_bytes)
        self._counted = unread_bytes

    def count_in(self, share: Share) -> None:
        """Counts what the peer has not read in another share from now on."""
        if share is not self._share:
            unread_bytes = self._counted
            self.count(0)
            self._share = share
            self.count(unread_bytes)

    def close(self) -> None:
        """Closes the connection when what has been written is sent."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Closes the connection now and drops what has not been sent."""
        if self.transport is not None:
            self.transport.abort()

    def lost(self) -> None:
        """Drops everything: the connection has ended."""
        self.transport = None
        self._streamed.clear()
        self.count(0)
