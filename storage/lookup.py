"""Finding offsets by time in a partition's segments (KIP-33, KIP-79, KIP-734).

A lookup for T answers with the smallest offset, from the log's start and below an upper offset, of a
data record whose time is T or later, in offset order, whatever the order of the times. It is exact for
every format, codec and time, negative ones included; a record without a time is never found, and
where nothing is found the answer is None. Each segment says whether it may hold the answer, then
finds it: `Segment.largest_time`, `Segment.find_time`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import UnsupportedVersion
from protocol.records.batch import records
from storage import timestamps
from storage.timestamps import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.segment import Found, Segment


def find_time(
    segments: Sequence[Segment], timestamp: int, *, start_offset: int, upper_offset: int
) -> tuple[int, int] | None:
    """Return (offset, time) of the first record at or after a time; raises OSError."""
    for segment in segments:
        if segment.tail.end_offset <= start_offset:
            continue
        if segment.base_offset >= upper_offset:
            break
        if not timestamps.reaches(segment.largest_time(), timestamp):
            continue
        found = segment.find_time(timestamp, min_offset=start_offset, upper_offset=upper_offset)
        if found is not None:
            return found
    return None


def is_at_hand(segments: Sequence[Segment], target: int, *, start_offset: int) -> bool:
    """Tell whether looking up a time, or MAX_TIMESTAMP, reads no more than an index interval.

    Then it need not leave the thread that serves everybody; otherwise an index may have to be read
    first, or a good part of a segment.
    """
    largest: int | None = None
    holder: Segment | None = None  # the segment that will be searched
    for segment in segments:
        if segment.tail.end_offset <= start_offset:
            continue
        times, size = segment.known_times
        if size < segment.tail.size or segment.base_offset < start_offset:
            return False
        if target == Target.MAX_TIMESTAMP:
            if timestamps.exceeds(times.largest, largest):
                largest, holder = times.largest, segment
        elif timestamps.reaches(times.largest, target):
            holder = segment
            break
    return holder is None or (holder.is_true and holder.has_indexes_in_memory)


def find_largest(
    segments: Sequence[Segment], *, start_offset: int, upper_offset: int
) -> tuple[int, int] | None:
    """Return (offset, time) of the first record that has the largest time; raises OSError."""
    largest: int | None = None
    for segment in segments:
        if segment.tail.end_offset <= start_offset or segment.base_offset >= upper_offset:
            continue
        if segment.base_offset >= start_offset and segment.tail.end_offset <= upper_offset:
            candidate = segment.largest_time()
        else:
            candidate = _largest_between(segment, start_offset, upper_offset)
        if timestamps.exceeds(candidate, largest):
            largest = candidate
    if largest is None:
        return None
    return find_time(segments, largest, start_offset=start_offset, upper_offset=upper_offset)


def offsets_before(
    segments: Sequence[Segment],
    timestamp: int,
    max_offsets: int,
    *,
    start_offset: int,
    upper_offset: int,
) -> list[int]:
    """Answer ListOffsets v0: an offset, then the earlier segments' first ones, descending.

    For a time the offset is where its lookup leads, the upper offset if that finds nothing; for -1
    the upper offset, for -2 the log's start alone. Raises UnsupportedVersion for the other special
    values, which version 0 does not know, and OSError.
    """
    if timestamp == Target.EARLIEST:
        return [start_offset][:max_offsets]
    if timestamp == Target.LATEST:
        first = upper_offset
    elif timestamps.is_target(timestamp):
        raise UnsupportedVersion(f"ListOffsets v0 has no timestamp {timestamp}")
    else:
        found = find_time(segments, timestamp, start_offset=start_offset, upper_offset=upper_offset)
        first = upper_offset if found is None else found[0]
    bases = {max(segment.base_offset, start_offset) for segment in segments}
    earlier = sorted((base for base in bases if base < first), reverse=True)
    return [first, *earlier][: max(max_offsets, 0)]


def _largest_between(segment: Segment, start_offset: int, upper_offset: int) -> int | None:
    """Return the largest time of a segment's records between two offsets, the second excluded."""
    largest: int | None = None
    for found in segment.walk():
        if found.batch.last_offset < start_offset:
            continue
        candidate = segment.largest_of(found)
        if timestamps.exceeds(candidate, largest):
            if not _lies_between(found, start_offset, upper_offset):
                candidate = _largest_of_records(found, start_offset, upper_offset)
            if timestamps.exceeds(candidate, largest):
                largest = candidate
        if found.batch.last_offset + 1 >= upper_offset:
            break
    return largest


def _lies_between(found: Found, start_offset: int, upper_offset: int) -> bool:
    return start_offset <= found.batch.base_offset and found.batch.last_offset < upper_offset


def _largest_of_records(found: Found, start_offset: int, upper_offset: int) -> int | None:
    largest: int | None = None
    for record in records(found.buffer, found.batch):
        time = timestamps.or_none(record.timestamp)
        if start_offset <= record.offset < upper_offset and timestamps.exceeds(time, largest):
            largest = time
    return largest
