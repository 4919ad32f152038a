"""What one connection holds of the memory for frames, and whether it waits for more.

A frame of up to `frames.LARGE_BYTES` is counted as it arrives. The memory of a larger one is reserved whole
before more of it is read; while others come first, the connection is not read. One that would wait is
refused if those who wait hold too much already, as each holds the first bytes of its frame: else nobody
could go on.

Nothing is reserved for a large frame while an earlier request of its connection may wait for as long as
the peer likes: its memory would not come back before. Kafka reads no further request at all meanwhile.

A frame may not hold its memory for ever: a peer that sends nothing of the rest for `IDLE_S`, or sends it
more slowly than `_LEAST_RATE`, has stalled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.network.memory.share import MemoryWait, Share
    from tidelog.broker.network.stream.frames import Frames

IDLE_S: Final = 10.0
_LEAST_RATE = 64 << 10  # bytes a second, and four times that while others wait for memory


class Held:
    """The bytes that one connection holds of a share, and what it waits for."""

    __slots__ = (
        "_counted",
        "_frames",
        "_granted",
        "_share",
        "_since",
        "_wait",
        "is_behind",
        "serving_bytes",
    )

    def __init__(self, share: Share, frames: Frames, granted: Callable[[], object]) -> None:
        """`granted` is called when the connection, which had to wait, can be read again."""
        self.serving_bytes = 0  # of the frame that is being served
        self.is_behind = False  # whether the next frame waits for a request or an answer before it
        self._share = share
        self._frames = frames
        self._granted = granted
        self._counted = 0
        self._wait: MemoryWait | None = None
        # A time of the monotonic clock, and the bytes of the large frame that were there.
        self._since: tuple[float, int] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the connection waits for memory."""
        return self._wait is not None

    def update(self) -> bool:
        """Counts what is held now, and reserves what a large frame needs.

        Returns False if the connection has to be refused.
        """
        frames, share = self._frames, self._share
        wanted = frames.wanted_bytes
        if wanted and self._wait is None:
            is_next = not self.is_behind and not frames.has_unserved
            if is_next and not self._reserve(wanted - frames.have_bytes):
                return False
        elif self._wait is not None and not wanted:
            self._stop_waiting()
        held = frames.held_bytes + self.serving_bytes
        # What is released may be granted to this very connection, which counts that in `_allot`.
        counted, self._counted = self._counted, held
        if held > counted:
            share.add(held - counted)
        elif held < counted:
            share.release(counted - held)
        return True

    def _reserve(self, missing: int) -> bool:
        """Reserves what is missing of a large frame, or waits; returns False to refuse it."""
        frames, share = self._frames, self._share
        if share.take(missing):
            self._counted += missing
            self._since = None
            frames.allot()
        elif not share.may_wait(missing, frames.have_bytes):
            return False
        else:
            self._wait = share.wait(missing, self._allot, held_bytes=frames.have_bytes)
        return True

    def served(self) -> None:
        """Releases the memory of the frame that was served."""
        if self.serving_bytes:
            self.serving_bytes = 0
            self.update()

    def close(self) -> None:
        """Releases what the connection holds, but for the frame that is still served."""
        self._stop_waiting()
        self._granted = _nobody  # else the connection and this would keep each other in memory
        self._frames.clear()
        self.update()

    def resume(self, now_s: float) -> None:
        """Notes that the connection is read from now on: before, the peer could not send."""
        self._since = now_s, self._frames.have_bytes

    def has_stalled(self, last_active_s: float, now_s: float) -> bool:
        """Returns whether the peer of a connection that is read leaves a frame incomplete."""
        have_bytes = self._frames.have_bytes
        if not have_bytes or self._wait is not None:
            return False
        read_since_s = last_active_s if self._since is None else self._since[0]
        if now_s - max(last_active_s, read_since_s) > IDLE_S:
            return True
        if not self._frames.is_allotted:
            return False
        if self._since is None:
            self._since = now_s, have_bytes
            return False
        since_s, had_bytes = self._since
        rate = 4 * _LEAST_RATE if self._share.waiting else _LEAST_RATE
        return have_bytes - had_bytes < (now_s - since_s - IDLE_S) * rate

    def _allot(self) -> None:
        assert self._wait is not None
        self._counted += self._wait.size_bytes
        self._wait = self._since = None
        self._frames.allot()
        self._granted()

    def _stop_waiting(self) -> None:
        if self._wait is not None:
            self._share.leave(self._wait)
            self._wait = None


def _nobody() -> None:
    """Is called for a connection that has ended."""
