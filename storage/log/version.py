"""What readers of a log hold: an immutable version of it, and where it ends.

A version is replaced whole, whenever the log has other segments or another start. Readers that hold one
read its segments as long as they like: files of segments that were deleted or replaced are removed
when the last holder has let go, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import threading

    from storage.segment.segment import Segment


class Ends(NamedTuple):
    """Where a log ends, for whom. Read as one value, so that the three belong together."""

    log_end_offset: int  # the offset of the next record
    high_watermark: int  # others may read what lies before it
    last_stable_offset: int  # every transaction before it is decided


class Version:
    """The segments of a log and its start, as they are until the next version.

    `LogState.hold` returns one that is counted as held; `release`, or the end of a `with` block, lets
    go of it.
    """

    __slots__ = ("_lock", "generation", "holders", "log_start_offset", "number", "segments")

    def __init__(
        self,
        number: int,
        segments: tuple[Segment, ...],
        log_start_offset: int,
        generation: int,
        lock: threading.Lock,
    ) -> None:
        self.number = number  # counts the versions of the log
        self.segments = segments  # by base offset; the last one is active
        self.log_start_offset = log_start_offset
        self.generation = generation  # counts truncations and changes of the leader
        self.holders = 0
        self._lock = lock

    def release(self) -> None:
        """Let go of the version."""
        with self._lock:
            self.holders -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
