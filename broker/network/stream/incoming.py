"""What arrives on one connection: where its bytes go, and when its socket is read.

It promises:

- Bytes arrive in memory that is shared by all connections of a broker, `ARRIVING_BYTES` at most at a time.
  While others have to be served first, requests and the first bytes of larger ones come in pieces of
  `_CROWDED_BYTES`: hundreds of peers that send much at once do not hold up the loop, which reads all of them
  before it does anything else.
- The rest of a large frame arrives in its own place, and is not copied.
- Memory is bounded: at most `_PIPELINE_BYTES` of requests are buffered that are not served yet, then the
  socket is not read. Nor is it while the connection waits for the memory of a large frame (`held.py`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tidelog.broker.network.stream.frames import COPY_BYTES, LEAST_BYTES, Frames
from tidelog.broker.network.stream.held import Held

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.broker.network.memory.share import Share

ARRIVING_BYTES: Final = 64 << 10
_CROWDED_BYTES = 16 << 10
_PLACE_BYTES = 256 << 10  # of a large frame, at a time
_PIPELINE_BYTES = 1 << 20
_LENGTH = struct.Struct(">i")


class Incoming:
    """The frames of one connection, the memory that they hold, and whether its socket is read."""

    __slots__ = ("_place", "_shared", "frames", "held", "is_read")

    def __init__(self, share: Share, shared: memoryview, granted: Callable[[], object]) -> None:
        """`shared` is where the bytes of all connections arrive; for the others see `Held`."""
        self.frames = Frames()
        self.held = Held(share, self.frames, granted)
        self.is_read = True
        self._shared = shared
        self._place: memoryview | None = None  # where the bytes that arrive next go, if not there

    def buffer(self, *, is_crowded: bool) -> memoryview:
        """Returns where the next bytes go; `is_crowded`: others have to be served first."""
        place = self._place = self.frames.room()
        if place is not None:
            return place[: ARRIVING_BYTES if is_crowded else _PLACE_BYTES]
        is_limited = is_crowded and self.frames.have_bytes < _CROWDED_BYTES
        return self._shared[:_CROWDED_BYTES] if is_limited else self._shared

    def one_frame(self, nbytes: int, limit_bytes: int) -> bytes | None:
        """Returns the frame if the bytes that have arrived are exactly a small one: nearly always.

        Nothing may wait, and nothing may be incomplete.
        """
        size = nbytes - 4
        if (
            LEAST_BYTES <= size <= COPY_BYTES
            and size == _LENGTH.unpack_from(self._shared)[0]
            and size <= limit_bytes
            and self.is_read
        ):
            return bytes(self._shared[4:nbytes])
        return None

    def arrived(self, nbytes: int) -> bytes | None:
        """Returns the bytes that have arrived; None if they are in the place of their frame."""
        if self._place is None:
            return bytes(self._shared[:nbytes])
        self._place = None
        self.frames.extend(nbytes)
        return None

    def regulate(self, transport: asyncio.Transport, now_s: float, *, may_read: bool) -> None:
        """Reads the socket, or stops reading it while there is no room; `now_s` is a time of the loop."""
        frames = self.frames
        room = may_read and frames.waiting_bytes < _PIPELINE_BYTES and not frames.wanted_bytes
        if room == self.is_read:
            return
        self.is_read = room
        if room:
            self.held.resume(now_s)
            transport.resume_reading()
        else:
            transport.pause_reading()
