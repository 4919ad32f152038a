"""Append times after a stop: which are unknown, and how far the append clock had come.

After a power loss the entries of `.appendtimes` may be older than the batches that they describe,
and another broker writes none. Such batches are adopted: they count as appended now.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage.segment.appended import layout
from tidelog.storage.time.adoption import Adoptions, adopt
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.adoption import Adopted

_log = logging.getLogger("tidelog.storage")


def unknown_from(
    segments: Sequence[Segment],
    known: PartitionTimes | None,
    *,
    was_clean: bool,
    is_ours: bool,
    boot_id: str,
) -> int | None:
    """Returns the offset after which append times are doubtful; None if all are right.

    `is_ours` is false if another broker has written to the log since its last stop.
    """
    if known is None:
        return None if was_clean else segments[0].base_offset
    if was_clean or known.boot_id != boot_id or not is_ours:
        return known.covered_offset
    return None


def mark_unknown(segments: Sequence[Segment], covered_offset: int, *, is_ours: bool = True) -> None:
    """Marks the append times after an offset as unknown.

    Those that the file marks as durable stay known, where `partition.times` shows that the log is
    ours, and not a copy: `is_ours`. Raises OSError.
    """
    for segment in segments:
        end_offset = segment.tail.end_offset
        if end_offset <= covered_offset or not segment.tail.size:
            continue
        vouched_offset = segment.append_times.end_offset if is_ours else covered_offset
        from_offset = max(covered_offset, vouched_offset)
        if from_offset < end_offset:
            _log.warning(
                "append times unknown",
                extra={"segment": segment.path, "from": from_offset, "to": end_offset},
            )
            segment.append_times.mark_unknown(from_offset)
            segment.append_times.sync()  # what was there must not come back before newer entries
            segment.known.replace(SegmentTimes(), 0)


def lost_from(segments: Sequence[Segment], from_offset: int, recovery_point: int) -> int | None:
    """Returns the first offset, from an offset on, whose append time is unknown; None: there is none.

    Files of segments that were durable are not read. Raises OSError.
    """
    for segment in segments:
        end_offset, base_offset = segment.tail.end_offset, segment.base_offset
        if end_offset <= from_offset or not segment.tail.size:
            continue
        times = segment.append_times
        is_doubted = segment.known.times.has_unknown or times.has_lost
        if not is_doubted and (end_offset <= recovery_point or times.is_complete):
            continue
        first = max(base_offset, from_offset)
        entries = list(times.entries())
        starts = [base_offset + entry.offset for entry in entries]
        if not entries or first < starts[0]:
            return first
        for entry, start, end in zip(entries, starts, [*starts[1:], end_offset], strict=True):
            if entry.time == layout.UNKNOWN and end > first:
                return max(start, first)
    return None


def adopted(
    segments: Sequence[Segment], before: tuple[Adopted, ...], now_ms: int
) -> tuple[Adopted, ...]:
    """Adopts the batches with unknown append times that were not adopted before.

    Returns the ranges, and gives them to the segments. Raises OSError.
    """
    adopted_end = before[-1].end_offset if before else -1
    ranges = before
    for segment in reversed(segments):
        end_offset = segment.tail.end_offset
        if end_offset <= adopted_end:
            break
        if segment.tail.size and segment.known.times.has_unknown:
            ranges = adopt(before, segment.append_times.unknown_end(end_offset), now_ms)
            break
    for segment in segments:
        segment.known.adoptions = Adoptions(ranges, now_ms)
    return ranges


def note_unknown(segments: Sequence[Segment], *, was_clean: bool, recovery_point: int) -> None:
    """Records in the segments' times whether some append time is unknown. Raises OSError.

    Without batches none is: of a segment that is empty after a cut, entries may be left.
    """
    for segment in segments:
        times, size = segment.known.times, segment.known.size
        if not segment.tail.size:
            times.has_unknown = False
            continue
        if size < segment.tail.size:
            times.has_unknown |= not segment.append_times.is_complete
        elif not was_clean and (times.has_unknown or segment.tail.end_offset > recovery_point):
            # Perhaps only of batches cut off since; or the file's end was lost with the power.
            times.has_unknown = not segment.append_times.is_complete


def last_append_time(
    segments: Sequence[Segment], back_offset: int, stamps: Mapping[int, int | None]
) -> int | None:
    """Returns the last stored append time, from the newest segment with one, or a later batch time.

    Segments before `back_offset` do not count. `stamps` are the largest LogAppendTime times in each
    segment, by base offset: if an append time is lost, they show how far the append clock had come.
    """
    found, last_time = False, None
    for segment in reversed(segments):
        if segment.base_offset < back_offset:
            break
        if not found:
            last_time = later(last_time, segment.append_times.last_time)
            found = segment.append_times.last_time is not None
        last_time = later(stamps.get(segment.base_offset), last_time)
    return last_time
