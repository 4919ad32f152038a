"""Bytes in, ordered bytes out.

One connection is one asyncio protocol. It promises:

- requests are served strictly one after the other, so answers leave in request order and the appends
  of a pipelining producer keep their order (Kafka mutes the channel to the same end);
- a request that can be answered at once is answered inside `data_received`, without a task;
- a peer that never stops sending takes turns with the others: each waits a few milliseconds at most;
- memory is bounded: while a request is served, or the peer does not read its answers, at most
  `_PIPELINE_BYTES` of further requests are taken in, then the socket is not read; a frame's bytes are
  held as they arrive, never allocated on the word of its length;
- whatever cannot be understood closes this connection, is logged and counted, and touches no other;
- what came whole before that, or before the peer left, is still served, as Kafka does: a producer with
  acks=0 may close right behind its last request. Only a fetch or a lookup is given up with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from broker.network.context import CloseConnection
from broker.network.dispatch import dispatch
from broker.security.session import ANONYMOUS, Session

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker.network.dispatch import Answer
    from broker.network.listener import Listener
    from broker.node import Node

log = logging.getLogger("tidelog.connection")

_PIPELINE_BYTES = 1 << 20
# Below this size a copy out of the receive buffer is cheaper than decoding through a memoryview.
_COPY_BYTES = 16_384
_MOST_CHUNKS = 4096  # pieces of one frame
# How requests begin that change nothing and may take long: Fetch and ListOffsets.
_GIVEN_UP = (b"\0\1", b"\0\2")
# A peer that keeps the socket full is served for so long before the others have their turn.
_TURN_S = 0.002
# Answers that are ready together leave together, up to so many bytes.
_HELD_BYTES = 16_384


class Connection(asyncio.Protocol):
    """One client's connection, from accept to close."""

    def __init__(self, node: Node, listener: Listener) -> None:
        self.node = node
        self.listener = listener
        self.session = Session(ANONYMOUS, "", listener.name)
        self.peer = ""
        self.client_id: str | None = None
        self.software = ""  # name and version, once ApiVersions v3 has told
        self.last_active_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []  # an incomplete frame, its length prefix included
        self._have = 0  # bytes in _chunks
        self._need = 4  # bytes until something can be done: the prefix, then the whole frame
        self._waiting: deque[bytes | memoryview] = deque()  # whole frames not yet served
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = (
            None  # the request that could not be answered at once
        )
        self._may_give_up = False  # the task, when the peer has left
        self._turn: asyncio.Handle | None = None  # set while the others have theirs
        self._end: str | None = None  # why nothing is read any more; "" if the peer has left
        self._left = False  # the broker stops
        self._writable = True
        self._unsent_bytes = 0  # what node.connections.unsent_bytes holds of ours
        self._reading = True

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self._task is not None

    # -- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; refuse when the broker is full."""
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        if peer:
            self.session = self.session._replace(host=peer[0])
        self.last_active_s = self.node.clock.monotonic_s()
        if not self.node.connections.admit(self):
            log.warning("connection refused: max.connections reached", extra={"peer": self.peer})
            transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Forget everything; a fetch or lookup under way is cancelled, what changes anything is finished."""
        self._count_unsent(0)
        self._transport = None
        self.node.connections.discard(self)
        if self._have or self._waiting:
            self.node.metrics.disconnects_mid_request += 1
            log.info("peer left in mid-request", extra={"peer": self.peer, "bytes": self._have})
        self._chunks.clear()
        self._waiting.clear()
        if self._task is not None and self._may_give_up:
            self._task.cancel()

    def eof_received(self) -> bool:
        """The peer sends no more: serve what it sent, then close. A fetch or lookup is given up."""
        if self._end is not None or (self._task is not None and self._may_give_up):
            return False
        if not self._waiting and self._task is None:
            return False
        self._end = ""
        return True

    def pause_writing(self) -> None:
        """The peer reads slowly: serve nothing more until it has caught up."""
        self._writable = False

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._writable = True
        self._count_unsent(0)
        if self._task is None and self._turn is None:
            self._serve_waiting()

    def data_received(self, data: bytes) -> None:
        """Cut frames out of the stream and serve them."""
        if self._end is not None:
            return
        self.last_active_s = self.node.clock.monotonic_s()
        if self._is_one_frame(data):
            self._serve_one(data[4:])
            return
        if self._have:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                if len(self._chunks) > _MOST_CHUNKS:  # each costs more than a byte: fold them
                    self._chunks[:] = [b"".join(self._chunks)]
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._have = 0
        self._cut(data)
        if self._task is None and self._turn is None and (self._waiting or self._end is not None):
            self._serve_waiting()
        self._regulate()

    # -- frames ---------------------------------------------------------------------------------

    def _cut(self, data: bytes) -> None:
        """Queue every whole frame of `data`; keep the rest."""
        position = 0
        end = len(data)
        limit = self.node.settings.broker.socket_request_max_bytes
        while end - position >= 4:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            if size < 8 or size > limit:
                self._end = f"frame of {size} bytes (allowed: 8 to {limit})"
                return
            stop = position + 4 + size
            if stop > end:
                break
            whole = (
                data[position + 4 : stop]
                if size <= _COPY_BYTES
                else memoryview(data)[position + 4 : stop]
            )
            self._waiting.append(whole)
            self._waiting_bytes += size
            position = stop
        rest = end - position
        if rest:
            self._chunks.append(data[position:] if position else data)
            self._have = rest
            self._need = (
                4 + int.from_bytes(data[position : position + 4], "big") if rest >= 4 else 4
            )
        else:
            self._need = 4

    def _refuse(self, reason: str) -> None:
        """Drop the connection for what it sent."""
        self.node.metrics.bad_requests += 1
        log.warning("connection closed: %s", reason, extra={"peer": self.peer})
        self.hang_up()

    def hang_up(self) -> None:
        """Serve nothing more, let answers already written leave, then close."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self.close()

    def close(self) -> None:
        """Let answers already written leave, then close."""
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """Take no more, let answers already written leave, and wait for the peer to close.

        Closing at once while the peer still sends would make the kernel reset the connection, and the
        peer lose answers on their way to it.
        """
        if self._transport is None or self._left or self._transport.is_closing():
            return
        self._left = True
        self._end = ""
        self._waiting.clear()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        self._transport.write_eof()

    def expire(self) -> None:
        """Close a connection that was silent for too long; one that does not read is cut off."""
        if self._writable:
            self.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Close now, whatever has not left."""
        if self._transport is not None:
            self._transport.abort()

    def _regulate(self) -> None:
        """Read the socket only while there is room for what it brings."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        room = self._left or (
            self._waiting_bytes < _PIPELINE_BYTES and self._end is None and self._turn is None
        )
        if room != self._reading:
            self._reading = room
            if room:
                transport.resume_reading()
            else:
                transport.pause_reading()

    # -- serving --------------------------------------------------------------------------------

    def _is_one_frame(self, data: bytes) -> bool:
        """Whether nothing is under way or left over, and this is one small request: nearly always."""
        size = len(data) - 4
        return (
            not self._have
            and self._task is None
            and not self._waiting
            and self._turn is None
            and self._reading
            and self._writable
            and 8 <= size <= _COPY_BYTES
            and size == int.from_bytes(data[:4], "big")
            and size <= self.node.settings.broker.socket_request_max_bytes
        )

    def _serve_one(self, frame: bytes) -> None:
        """Do what `_serve_waiting` does for a frame that came alone, without a queue."""
        try:
            answer = dispatch(self.node, self, frame)
        except CloseConnection as reason:
            self._refuse(str(reason))
            return
        if isinstance(answer, list):
            self._write(answer)
        elif answer is not None:
            self._finish_later(frame, answer)

    def _serve_waiting(self) -> None:
        """Serve queued frames until one has to wait, the peer does not read, or the turn is over.

        Small answers to frames that came together leave together: half of such a request's cost is sending.
        """
        monotonic_s = self.node.clock.monotonic_s
        over_s = monotonic_s() + _TURN_S
        held: list[bytes | bytearray | memoryview] = []
        held_bytes = 0
        while self._waiting and self._writable and self._transport is not None:
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            try:
                answer = dispatch(self.node, self, frame)
            except CloseConnection as reason:
                self._write(held)
                self._refuse(str(reason))
                return
            if isinstance(answer, list):
                held += answer
                held_bytes += len(answer[0])
                if len(answer) > 1 or held_bytes >= _HELD_BYTES or not self._waiting:
                    self._write(held)
                    held, held_bytes = [], 0
            elif answer is not None:
                self._finish_later(frame, answer)
                break
            if monotonic_s() > over_s:
                # Not reading for a round of the loop matters too: it would hand over what has come
                # in the meantime, many times over, before it looks at another socket.
                self._turn = asyncio.get_running_loop().call_soon(self._go_on)
                break
        self._write(held)
        if self._end is not None and not (self._waiting or self._task or self._turn or self._left):
            if self._end:
                self._refuse(self._end)
            else:
                self.close()
            return
        self._regulate()

    def _go_on(self) -> None:
        """The others had their turn."""
        self._turn = None
        if self._task is None:
            self._serve_waiting()

    def _finish_later(self, frame: bytes | memoryview, answer: Awaitable[Answer]) -> None:
        """Wait for an answer in a task; nothing else is served until it has come."""
        self._may_give_up = frame[:2] in _GIVEN_UP
        self._task = asyncio.get_running_loop().create_task(self._finish(answer))

    async def _finish(self, answer: Awaitable[Answer]) -> None:
        """Wait for one answer, write it, go on with the queue."""
        try:
            parts = await answer
        except CloseConnection as reason:
            self._refuse(str(reason))
            return
        except Exception:
            log.exception("request failed outside its handler", extra={"peer": self.peer})
            self._refuse("internal error while answering")
            return
        finally:
            self._task = None
        if parts is not None:
            self._write(parts)
        self._serve_waiting()

    def _write(self, parts: list[bytes | bytearray | memoryview]) -> None:
        """Send answers; each begins with its four-byte length."""
        if not parts:
            return
        self.last_active_s = self.node.clock.monotonic_s()
        if self._transport is not None:
            if len(parts) == 1:
                self._transport.write(parts[0])
            else:
                self._transport.writelines(parts)
            if not self._writable:
                self._count_unsent(self._transport.get_write_buffer_size())

    def _count_unsent(self, size_bytes: int) -> None:
        """Tell the node how much of our answers waits for the peer to read."""
        self.node.connections.unsent_bytes += size_bytes - self._unsent_bytes
        self._unsent_bytes = size_bytes
