"""An immutable version of a log, which readers hold, and the log's ends.

A version is replaced as a whole when the log gets other segments or another start. Readers that
hold one may read its segments for as long as they like: the files of deleted or replaced segments
are removed only when the last holder has released it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import threading

    from tidelog.storage.segment.segment import Segment


class Ends(NamedTuple):
    """The ends of a log. Read as one value, so that the three are consistent."""

    log_end_offset: int  # the offset of the next record
    high_watermark: int  # others may read below it
    last_stable_offset: int  # every transaction below it is complete


class Version:
    """The segments of a log and its start, until the next version.

    `LogState.hold` returns a version that is counted as held, until `release` or the end of a
    `with` block.
    """

    __slots__ = (
        "_aborting",
        "_lock",
        "generation",
        "holders",
        "log_start_offset",
        "number",
        "segments",
    )

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
        self._aborting: tuple[Segment, ...] | None = None

    @property
    def knows_aborting(self) -> bool:
        """Whether `aborting` reads nothing."""
        closed = self.segments[:-1]
        return self._aborting is not None or all(each.aborted.is_in_memory for each in closed)

    @property
    def has_no_aborts(self) -> bool:
        """Whether no segment has abort markers, as far as that is in memory."""
        aborting = self._aborting
        return aborting is not None and len(aborting) == 1 and aborting[0].aborted.is_known_empty

    def aborting(self) -> tuple[Segment, ...]:
        """Returns the segments that may hold abort markers, in order. Raises OSError.

        Those are the active one, and the others whose transaction index has entries.
        """
        aborting = self._aborting
        if aborting is None:
            closed = self.segments[:-1]
            found = [segment for segment in closed if segment.aborted.since(0)]
            aborting = self._aborting = (*found, self.segments[-1])
        return aborting

    def release(self) -> None:
        """Releases the version."""
        with self._lock:
            self.holders -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
