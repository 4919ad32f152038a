"""The largest event time that a partition has ever shown its consumers: partition.maxEventTime.

It is the maximum over all data records that were ever below the high watermark. Each counts at most
as its append time plus a limit (`event_time.event_limit`), so that one absurd time does not expire
the log. A record that was counted once stays counted after it is gone. Records above the high
watermark are not counted yet: in flush mode no consumer has seen them, and a crash may remove them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from storage.time.corrections import counted_event
from storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from protocol.records.plan import PreparedBatch
    from storage.segment.segment import Segment
    from storage.time.segment_times import SegmentTimes


class _Pending(NamedTuple):
    end_offset: int
    event: int | None


class LargestEvent:
    """The largest event time of a log; used under the partition's append lock."""

    __slots__ = ("_kept", "_pending")

    def __init__(self, kept: int | None) -> None:
        """Begins with the stored value; None if there is none."""
        self._kept = kept
        self._pending: deque[_Pending] = deque()  # of appends above the high watermark

    def appending(
        self, active: Segment, judge: Callable[[Segment, SegmentTimes], SegmentTimes]
    ) -> None:
        """Prepares for an append above the high watermark. Raises OSError.

        If all records are below it now, the times of the active segment count first. `judge` says
        as what.
        """
        if not self._pending:
            times = active.times
            self.keep(counted_event(times, judge(active, times)))

    def appended(self, batches: Iterable[PreparedBatch], limit: int) -> None:
        """Records an append above the high watermark; its event time counts at most as `limit`."""
        for batch in batches:
            event = None
            if not batch.is_control and batch.largest is not None:
                event = min(batch.largest, limit)
            self._pending.append(_Pending(batch.last_offset + 1, event))

    def hold_back(self, batches: Iterable[tuple[int, int | None]], high_watermark: int) -> None:
        """Counts batches above a lower high watermark only once it is behind them.

        A batch is its end offset, and its event time as it counts.
        """
        self._pending.clear()
        for end_offset, event in batches:
            if end_offset <= high_watermark:
                self.keep(event)
            else:
                self._pending.append(_Pending(end_offset, event))

    def keep(self, event: int | None) -> None:
        """Counts an event time permanently."""
        self._kept = later(event, self._kept)

    def advance(self, high_watermark: int) -> None:
        """Counts the records below a new high watermark."""
        pending = self._pending
        while pending and pending[0].end_offset <= high_watermark:
            self.keep(pending.popleft().event)

    def truncate_to(self, end_offset: int) -> None:
        """Drops the appends above the high watermark that have been truncated."""
        while self._pending and self._pending[-1].end_offset > end_offset:
            self._pending.pop()

    def begin_again(self, limit_at: Callable[[int], int]) -> None:
        """Forgets what was counted while the clock was ahead: the records that remain count.

        What is above the high watermark counts at most as the limit at its offset.
        """
        self._kept = None
        self._pending = deque(
            _Pending(end_offset, None if event is None else min(event, limit_at(end_offset - 1)))
            for end_offset, event in self._pending
        )

    def below(
        self,
        high_watermark: int,
        segments: Sequence[Segment],
        judge: Callable[[Segment, SegmentTimes], SegmentTimes],
    ) -> int | None:
        """Returns the largest event time below the high watermark.

        `judge` returns what the times of a segment count as. Segments whose times are not known
        yet are not read, and do not count.
        """
        self.advance(high_watermark)
        largest = self._kept
        for segment in segments:
            if not self._pending or segment.tail.end_offset <= high_watermark:
                times = segment.known_times[0]
                largest = later(counted_event(times, judge(segment, times)), largest)
        return largest
