"""The largest event time that a partition has ever shown its consumers: partition.maxEventTime.

It is the maximum over all data records that were ever below the high watermark. Each counts at most
as its append time plus a limit (`event_time.event_limit`), so that one absurd time does not expire
the log. A record that was counted once stays counted after it is gone. Records above the high
watermark are not counted yet: in flush mode no consumer has seen them, and a crash may remove them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.time.corrections import counted_event
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.protocol.records.plan import PreparedBatch
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.segment_times import SegmentTimes


class CountedBatch(NamedTuple):
    """A batch as far as it counts for the largest event time."""

    end_offset: int
    event: int | None  # as it counts; None: it has none
    base_offset: int  # of its segment


class _Part(NamedTuple):
    base_offset: int
    event: int | None  # the largest of its batches that have been counted


_NO_PART = _Part(-1, None)


class LargestEvent:
    """The largest event time of a log; used under the partition's append lock."""

    __slots__ = ("_kept", "_part", "_pending", "_rules", "_settled_offset")

    def __init__(self, kept: int | None) -> None:
        """Begins with the stored value; None if there is none."""
        self._kept = kept
        self._pending: deque[CountedBatch] = deque()  # of appends above the high watermark
        # Of the segment in which the high watermark is, while there are any; else it is not used.
        self._part = _NO_PART
        # Segments that end here or before are in `_kept`, as they count by these rules.
        self._settled_offset = -1
        self._rules: tuple[object, ...] = ()

    @property
    def kept(self) -> int | None:
        """What counts permanently, whatever the segments hold."""
        return self._kept

    def appending(
        self, active: Segment, judge: Callable[[Segment, SegmentTimes], SegmentTimes]
    ) -> None:
        """Prepares for an append above the high watermark. Raises OSError.

        If all records are below it now, the times of the active segment count first. `judge` says
        as what.
        """
        if not self._pending:
            times = active.times
            self._part = _Part(active.base_offset, counted_event(times, judge(active, times)))
            self.keep(self._part.event)

    def appended(self, batches: Iterable[PreparedBatch], limit: int, base_offset: int) -> None:
        """Records an append above the high watermark; its event time counts at most as `limit`.

        `base_offset` is that of the segment.
        """
        for batch in batches:
            event = None
            if not batch.is_control and batch.largest is not None:
                event = min(batch.largest, limit)
            self._pending.append(CountedBatch(batch.last_offset + 1, event, base_offset))

    def hold_back(self, batches: Iterable[CountedBatch], high_watermark: int) -> None:
        """Counts batches above a lower high watermark only once it is behind them.

        `batches` are those of all segments that end above it.
        """
        self._pending.clear()
        self._part = _NO_PART
        for batch in batches:
            if batch.end_offset <= high_watermark:
                self._count(batch)
            else:
                self._pending.append(batch)

    def keep(self, event: int | None) -> None:
        """Counts an event time permanently."""
        self._kept = later(event, self._kept)

    def advance(self, high_watermark: int) -> None:
        """Counts the records below a new high watermark."""
        pending = self._pending
        while pending and pending[0].end_offset <= high_watermark:
            self._count(pending.popleft())

    def _count(self, batch: CountedBatch) -> None:
        _, event, base_offset = batch
        before = self._part.event if self._part.base_offset == base_offset else None
        self._part = _Part(base_offset, later(event, before))
        self.keep(event)

    def truncate_to(self, end_offset: int) -> None:
        """Drops the appends above the high watermark that have been truncated."""
        while self._pending and self._pending[-1].end_offset > end_offset:
            self._pending.pop()
        self._settled_offset = min(self._settled_offset, end_offset)

    def begin_again(self, limit_at: Callable[[int], int]) -> None:
        """Forgets what was counted while the clock was ahead: the records that remain count.

        What is above the high watermark counts at most as the limit at its offset.
        """
        self._kept = None
        self._settled_offset = -1
        self._pending = deque(
            each
            if each.event is None
            else each._replace(event=min(each.event, limit_at(each.end_offset - 1)))
            for each in self._pending
        )

    def below(
        self,
        high_watermark: int,
        segments: Sequence[Segment],
        judge: Callable[[Segment, SegmentTimes], SegmentTimes],
        rules: tuple[object, ...],
    ) -> int | None:
        """Returns the largest event time below the high watermark.

        `rules` is what `judge` goes by. Until it is another, segments that can change no more are
        looked at once: every answer to a follower asks for this. See `remaining` for the rest.
        """
        if rules != self._rules:
            self._rules, self._settled_offset = rules, -1
        first = len(segments) - 1
        while first and segments[first - 1].tail.end_offset > self._settled_offset:
            first -= 1
        for segment in segments[first:-1]:
            times, size = segment.known.times, segment.known.size
            is_known = size >= segment.tail.size and segment.indexes.are_true
            if not is_known or segment.tail.end_offset > high_watermark:
                break
            self.keep(counted_event(times, judge(segment, times)))
            self._settled_offset = segment.tail.end_offset
            first += 1
        remaining = self.remaining(high_watermark, segments[first:], judge)  # may keep another one
        return later(self._kept, remaining)

    def remaining(
        self,
        high_watermark: int,
        segments: Sequence[Segment],
        judge: Callable[[Segment, SegmentTimes], SegmentTimes],
    ) -> int | None:
        """Returns the largest event time that the segments have below the high watermark.

        `judge` returns what the times of a segment count as. Segments whose times are not known
        yet are not read, and do not count. Of the segment in which the high watermark is, the
        batches before it count.
        """
        self.advance(high_watermark)
        largest = None
        for segment in segments:
            times = segment.known.times
            if self._pending and segment.tail.end_offset > high_watermark:
                if segment.base_offset != self._part.base_offset or self._part.event is None:
                    continue
                times = times.copy()
                times.event = self._part.event
            largest = later(counted_event(times, judge(segment, times)), largest)
        return largest
