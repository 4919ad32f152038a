"""Scrubs the closed segments of one log, a slice at a time, beside everything else that works on it.

A slice holds the version of the log that it reads, so the files of a deleted or compacted segment stay
until the slice is over. Between two slices nothing is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import NotLeaderOrFollower
from tidelog.storage.segment.scrub import BadBatch, Scrubbed, ScrubPosition, scrub

if TYPE_CHECKING:
    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment


class Scrubbing(NamedTuple):
    """A segment that is being read, and where that goes on."""

    segment: Segment
    place: ScrubPosition


class Scrubber:
    """Reads the closed segments of a log; `state` is shared with all who work on it."""

    def __init__(self, state: LogState) -> None:
        """Reads nothing yet."""
        self._state = state

    def base_offsets(self) -> frozenset[int]:
        """Returns where the closed segments begin."""
        return frozenset(each.base_offset for each in self._state.version.segments[:-1])

    def first(self, base_offset: int) -> Scrubbing | None:
        """Returns the beginning of the first closed segment at or after an offset; None: there is none."""
        for segment in self._state.version.segments[:-1]:
            if segment.base_offset >= base_offset:
                return Scrubbing(segment, ScrubPosition(0, segment.base_offset))
        return None

    def slice(self, scrubbing: Scrubbing, most_bytes: int) -> Scrubbed | None:
        """Reads a slice of a segment.

        Returns None if the log has the segment no more: it was deleted, compacted or truncated, or the log
        is deleted or offline. A disk that cannot read is reported as a bad batch.
        """
        segment, place = scrubbing
        with self._state.hold() as version:
            closed = version.segments[:-1]
            if segment not in closed or self._state.is_stopped:
                return None
            end_offset = version.segments[closed.index(segment) + 1].base_offset
            try:
                scrubbed = scrub(segment, place, most_bytes, end_offset)
            except OSError as error:
                reason = f"cannot be read: {error.strerror or error}"
                bad = BadBatch(place.position, place.next_offset, reason)
                scrubbed = Scrubbed(None, 0, (bad,))
            try:
                self._state.check_generation(version)
            except NotLeaderOrFollower:
                return None  # the files were being truncated
            return scrubbed
