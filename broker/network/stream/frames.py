"""The frames of one connection's stream, cut out of it as its bytes arrive.

`Frames` knows no socket. It promises:

- A frame of more than `LARGE_BYTES` is `wanted` first; who uses this class reserves memory for it and calls
  `allot`, and takes no more bytes until then. Its memory is touched only as its bytes arrive.
- A frame that is larger than its API allows is refused by its first six bytes: length and API key. How
  large a request may be is declared with its API; `socket.request.max.bytes` limits every one.
- Of the frames that came together only some are cut at once: a peer that sends ten thousand of them in one
  piece does not hold up the others while they are counted.
- What is missing of a `wanted` frame arrives in its place, so that it is in memory once and is not copied.
- `held_bytes` is what the connection holds, or has reserved.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from typing import Final

from tidelog.broker.network.answers import CloseConnection, Excessive
from tidelog.broker.network.stream.served import Served
from tidelog.protocol.message import MIB, api_of

LARGE_BYTES: Final = 64 << 10
# Below this size a copy out of the receive buffer is cheaper than decoding through a memoryview.
COPY_BYTES: Final = 16_384
_MAPPED_BYTES = 4 << 20  # above this size, memory goes back to the machine with the frame
_MOST_CHUNKS = 4096  # the most chunks of one frame, and of what is not cut yet
LEAST_BYTES: Final = 8  # of a request's header
_JUDGED_BYTES = 6  # the length, and the API key
_MOST_CUT = 64  # frames that are cut at once

# `bytearray(size)` would write zeros.
_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.restype = ctypes.py_object
_new_bytearray.argtypes = ctypes.c_char_p, ctypes.c_ssize_t


class Frames:
    """Whole frames that wait, and one that is incomplete."""

    __slots__ = (
        "_chunks",
        "_more",
        "_need",
        "_place",
        "_rest",
        "have_bytes",
        "is_allotted",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self) -> None:
        self.waiting: deque[bytes | memoryview] = deque()  # whole frames, without their lengths
        self.waiting_bytes = 0  # of these, and of what is not cut yet
        self._rest: memoryview | None = None  # what is not cut yet
        self._more: list[bytes] = []  # and what has arrived since
        self.have_bytes = 0  # of an incomplete frame, its length prefix included
        self._need = _JUDGED_BYTES  # bytes that are needed to proceed, then the whole frame
        self._chunks: list[bytes] = []  # the incomplete frame
        self._place: memoryview | None = None  # or the memory that it arrives in
        self.is_allotted = False  # whether memory is reserved for all of it

    @property
    def wanted_bytes(self) -> int:
        """The size of an incomplete large frame for which no memory is reserved yet, else 0."""
        return self._need if self._need > LARGE_BYTES and not self.is_allotted else 0

    @property
    def has_waiting(self) -> bool:
        """Whether a frame waits to be served, or the answer to one that was served ahead of its turn."""
        return bool(self.waiting or self.waiting_bytes)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, and nothing is incomplete."""
        return not (self.has_waiting or self.have_bytes)

    @property
    def has_unserved(self) -> bool:
        """Whether a whole frame waits that was not served ahead of its turn."""
        return bool(self.waiting) and not isinstance(self.waiting[-1], Served)

    @property
    def has_served(self) -> bool:
        """Whether a frame was served whose answer waits for its turn."""
        return bool(self.waiting) and isinstance(self.waiting[0], Served)

    @property
    def held_bytes(self) -> int:
        """The bytes of the frames that wait, and of the incomplete one: all of it once allotted."""
        return self.waiting_bytes + (self._need if self.is_allotted else self.have_bytes)

    def allot(self) -> None:
        """Notes that the memory of the incomplete frame is reserved: it may arrive."""
        self.is_allotted = True

    def room(self) -> memoryview | None:
        """Returns where the rest of the incomplete frame is to arrive; None if it has no place of its own."""
        if not self.is_allotted:
            return None
        if self._place is None:
            self._place = _new_place(self._need)
            position = 0
            for chunk in self._chunks:
                self._place[position : position + len(chunk)] = chunk
                position += len(chunk)
            self._chunks.clear()
        return self._place[self.have_bytes :]

    def keep(self, data: bytes) -> None:
        """Stores what has arrived, and cuts nothing of it yet; the frames must be empty."""
        self._rest = memoryview(data)
        self.waiting_bytes += len(data)

    def extend(self, nbytes: int) -> None:
        """Notes that so many bytes more have arrived in `room`."""
        self.have_bytes += nbytes
        if self.have_bytes == self._need:
            place, size = self._place, self._need
            assert place is not None
            self._forget_incomplete()
            self.waiting.append(place[4:].toreadonly())
            self.waiting_bytes += size - 4

    def take(self, data: bytes, limit_bytes: int) -> CloseConnection | None:
        """Cuts frames out of what has arrived. Returns why the stream cannot be read on, None if it can."""
        if self._rest is not None:
            self._more.append(data)
            self.waiting_bytes += len(data)
            if len(self._more) > _MOST_CHUNKS:
                self._more[:] = [b"".join(self._more)]
            return None
        if not self.have_bytes:
            return self._cut(data, 0, limit_bytes)
        self._chunks.append(data)
        self.have_bytes += len(data)
        if self.have_bytes < self._need:
            if len(self._chunks) > _MOST_CHUNKS:  # each has an overhead, so they are joined
                self._chunks[:] = [b"".join(self._chunks)]
            return None
        data = b"".join(self._chunks)
        self._forget_incomplete()
        return self._cut(data, 0, limit_bytes)

    def pop(self) -> bytes | memoryview:
        """Returns the next frame; `go_on` has to be called where no frame is left then."""
        frame = self.waiting.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    def replace(self, number: int, other: bytes) -> None:
        """Replaces a waiting frame, by its number in the queue."""
        self.waiting_bytes += len(other) - len(self.waiting[number])
        self.waiting[number] = other

    def go_on(self, limit_bytes: int) -> CloseConnection | None:
        """Cuts more of what has arrived. Returns why the stream cannot be read on, None if it can."""
        rest, self._rest = self._rest, None
        if rest is None:
            return None
        data = rest.obj
        assert isinstance(data, bytes)
        position = len(data) - len(rest)
        if self._more:
            data, position = b"".join((rest, *self._more)), 0
            self._more.clear()
        self.waiting_bytes -= len(data) - position
        return self._cut(data, position, limit_bytes)

    def clear(self) -> None:
        """Drops everything that has arrived."""
        self.waiting.clear()
        self._rest = None
        self._more.clear()
        self.waiting_bytes = 0
        self._forget_incomplete()

    def _forget_incomplete(self) -> None:
        self._chunks.clear()
        self._place, self.is_allotted = None, False
        self.have_bytes, self._need = 0, _JUDGED_BYTES

    def _cut(self, data: bytes, position: int, limit_bytes: int) -> CloseConnection | None:
        """Queues some whole frames of `data`; keeps the rest."""
        end = len(data)
        waiting = self.waiting
        most = len(waiting) + _MOST_CUT
        while end - position >= 4:
            if len(waiting) == most:
                self._rest = memoryview(data)[position:]
                self.waiting_bytes += end - position
                return None
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            if size < LEAST_BYTES or size > limit_bytes:
                return _not_allowed(size, limit_bytes)
            if size > COPY_BYTES and end - position >= _JUDGED_BYTES:
                key = int.from_bytes(data[position + 4 : position + 6], "big", signed=True)
                refusal = _too_large_for(key, size, limit_bytes)
                if refusal is not None:
                    return refusal
            stop = position + 4 + size
            if stop > end:
                if end - position >= _JUDGED_BYTES:
                    self._need = 4 + size
                break
            whole = (
                data[position + 4 : stop]
                if size <= COPY_BYTES
                else memoryview(data)[position + 4 : stop]
            )
            waiting.append(whole)
            self.waiting_bytes += size
            position = stop
        rest = end - position
        if rest:
            self._chunks.append(data[position:] if position else data)
            self.have_bytes = rest
        return None


def _new_place(size: int) -> memoryview:
    """Returns memory for a frame. Nothing is written to it: that would take as long as to receive it."""
    if size > _MAPPED_BYTES:
        return memoryview(mmap.mmap(-1, size))
    return memoryview(_new_bytearray(None, size))


def _not_allowed(size: int, limit_bytes: int) -> CloseConnection:
    return CloseConnection(f"frame of {size} bytes (allowed: {LEAST_BYTES} to {limit_bytes})")


def _too_large_for(key: int, size: int, limit_bytes: int) -> CloseConnection | None:
    """Returns the refusal of a frame that is larger than its API allows."""
    api = api_of(key)
    most = MIB if api is None else api.request_bytes
    if most is None or size <= most:
        return None
    name = f"API key {key}" if api is None else api.name
    text = f"frame of {size} bytes for {name} (allowed: {LEAST_BYTES} to {min(most, limit_bytes)})"
    return Excessive(text, f"frame too large for {name}")
