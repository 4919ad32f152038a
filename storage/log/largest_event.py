"""The largest event time a partition has ever shown its consumers: partition.maxEventTime.

Over all data records that ever lay below the high watermark, each counted at most a bounded way
beyond its append time (`timestamps.event_limit`), so that one absurd stamp expires nothing. What was
once counted stays, whatever becomes of its record. What lies above the high watermark is not counted
yet: in flush mode nobody has seen it, and a crash may take it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from protocol.records.plan import PreparedBatch
    from storage.segment.segment import Segment


class _Pending(NamedTuple):
    end_offset: int
    event: int | None


class LargestEvent:
    """What is known of it; changed and asked under the partition's append lock."""

    __slots__ = ("_kept", "_pending")

    def __init__(self, kept: int | None) -> None:
        """Begin with what an earlier life has kept, None where it has not."""
        self._kept = kept
        self._pending: deque[_Pending] = deque()  # of appends beyond the high watermark

    def appending(self, active: Segment) -> None:
        """Prepare for an append above the high watermark; raises OSError.

        If nothing lies above it yet, all that the active segment has told lies below.
        """
        if not self._pending:
            self.keep(active.times.event)

    def appended(self, batches: Iterable[PreparedBatch], limit: int) -> None:
        """Note what has been appended above the high watermark, counted at most as `limit`."""
        for batch in batches:
            event = None
            if not batch.is_control and batch.largest is not None:
                event = min(batch.largest, limit)
            self._pending.append(_Pending(batch.last_offset + 1, event))

    def keep(self, event: int | None) -> None:
        """Count an event time for good."""
        self._kept = later(event, self._kept)

    def advance(self, high_watermark: int) -> None:
        """Count what lies below a high watermark that has moved on."""
        pending = self._pending
        while pending and pending[0].end_offset <= high_watermark:
            self.keep(pending.popleft().event)

    def truncate_to(self, end_offset: int) -> None:
        """Forget what lay above the high watermark and has been cut off."""
        while self._pending and self._pending[-1].end_offset > end_offset:
            self._pending.pop()

    def below(self, high_watermark: int, segments: Sequence[Segment]) -> int | None:
        """Return the largest event time below the high watermark.

        Of segments whose times are not known yet nothing is read for it.
        """
        self.advance(high_watermark)
        largest = self._kept
        for segment in segments:
            if not self._pending or segment.tail.end_offset <= high_watermark:
                largest = later(segment.known_times[0].event, largest)
        return largest
