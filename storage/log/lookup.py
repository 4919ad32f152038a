"""Finding offsets by time in a partition's segments (KIP-33, KIP-79, KIP-734).

A lookup of T finds the smallest offset of a data record whose time is T or later, from the log's
start and below an upper offset. The times may be in any order. It is exact for every format, codec
and time, including negative times. A record without a time is never found, and the result is None
if nothing is found. Each segment says whether it may hold the record, then finds it:
`Segment.largest_time`, `time_search.find_time`.

A lookup by append time finds the first batch appended at or after a time. The first segment that
has one is searched by bisection, because append times never decrease within a segment. If some
append times are unknown, the result says whether it is exact, which it is if the known times around
them leave only one possible result. Where compaction has removed the first record, the result is
the next one that is there, and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import OffsetOutOfRange, UnsupportedVersion
from tidelog.protocol.records.batch import records, scan, summarize
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage.log import slices
from tidelog.storage.segment import time_search
from tidelog.storage.segment.searching import end_before, position_of
from tidelog.storage.time.lookup import LookupTarget, is_target, reaches
from tidelog.storage.time.timestamp import exceeds, or_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.protocol.records.batch import Batch, Record
    from tidelog.protocol.records.layout import OffsetAndTimestamp
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.searching import Slice
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.segment_times import SegmentTimes


_LITTLE_BYTES = 64 << 10  # a thousand batches at most; an index interval is usually 4 KB


class AppendedSince(NamedTuple):
    """The start of what was appended at or after a time.

    `offset` is the first offset that is known to be appended then, or None. With `unknown_from`,
    the append times of the offsets from there to `offset`, or to the end, are unknown: the true
    result is one of them or `offset`, and if `offset` is None there may be none. With
    `absent_from`, compaction has removed the records from there to `offset`: the first one that was
    appended then may have been among them.
    """

    offset: int | None
    append_time: int | None  # of the batch at `offset`; None: unknown, but not before the time
    unknown_from: int | None
    absent_from: int | None = None


class OffsetTimes(NamedTuple):
    """The two times of an offset; None if it has none, or if it is unknown."""

    kind: str  # DATA, CONTROL or ABSENT
    record_time: int | None  # the time that a consumer sees; control records have none
    append_time: int | None
    is_log_append_time: bool  # the record time is the append time


DATA = "data"
CONTROL = "control"  # a transaction marker
ABSENT = "absent"  # there was a record, and compaction has removed it


def find_time(
    segments: Sequence[Segment],
    timestamp: int,
    *,
    start_offset: int,
    upper_offset: int,
    unpack_limit: int = STORED_LIMIT,
) -> OffsetAndTimestamp | None:
    """Returns (offset, time) of the first record at or after a time.

    Raises OSError, and UnpackedTooLarge at a batch of more than `unpack_limit` bytes.
    """
    for segment in segments:
        if segment.tail.end_offset <= start_offset:
            continue
        if segment.base_offset >= upper_offset:
            break
        if not reaches(segment.largest_time(), timestamp):
            continue
        found = time_search.find_time(
            segment,
            timestamp,
            min_offset=start_offset,
            upper_offset=upper_offset,
            unpack_limit=unpack_limit,
        )
        if found is not None:
            return found
    return None


def is_cached(
    segments: Sequence[Segment], target: int, *, start_offset: int, upper_offset: int
) -> bool:
    """Returns whether looking up a time, or MAX_TIMESTAMP, reads no more than a few index intervals.

    Otherwise an index may have to be read first, or a good part of a segment.
    """
    largest: int | None = None
    holder: Segment | None = None  # the segment that the lookup searches
    for segment in segments:
        if segment.tail.end_offset <= start_offset:
            continue
        if segment.base_offset >= upper_offset:
            break
        times, size = segment.known.times, segment.known.size
        if size < segment.tail.size or segment.base_offset < start_offset:
            return False
        if target == LookupTarget.MAX_TIMESTAMP:
            if not _is_below(segment, times, upper_offset):
                return False
            if exceeds(times.largest, largest):
                largest, holder = times.largest, segment
        elif reaches(times.largest, target):
            holder = segment
            break
    if holder is None:
        return True
    return time_search.reads_little(holder, target if largest is None else largest, _LITTLE_BYTES)


def _is_below(segment: Segment, times: SegmentTimes, upper_offset: int) -> bool:
    """Returns whether a segment, or at least its largest time, lies before an offset."""
    holder_offset = times.largest_offset
    return segment.tail.end_offset <= upper_offset or holder_offset < upper_offset


def find_largest(
    segments: Sequence[Segment],
    *,
    start_offset: int,
    upper_offset: int,
    unpack_limit: int = STORED_LIMIT,
) -> OffsetAndTimestamp | None:
    """Returns (offset, time) of the first record that has the largest time.

    Raises OSError, and UnpackedTooLarge at a batch of more than `unpack_limit` bytes.
    """
    largest: int | None = None
    for segment in segments:
        if segment.tail.end_offset <= start_offset or segment.base_offset >= upper_offset:
            continue
        if segment.base_offset >= start_offset and _is_below(segment, segment.times, upper_offset):
            candidate = segment.largest_time()
        else:
            candidate = _largest_between(segment, start_offset, upper_offset, unpack_limit)
        if exceeds(candidate, largest):
            largest = candidate
    if largest is None:
        return None
    return find_time(
        segments,
        largest,
        start_offset=start_offset,
        upper_offset=upper_offset,
        unpack_limit=unpack_limit,
    )


def offsets_before(
    segments: Sequence[Segment],
    timestamp: int,
    max_offsets: int,
    *,
    start_offset: int,
    upper_offset: int,
    unpack_limit: int = STORED_LIMIT,
) -> list[int]:
    """Returns the result of ListOffsets v0: an offset, then earlier base offsets, descending.

    For a time the first offset is the result of its lookup, or the upper offset if that finds
    nothing. For -1 it is the upper offset, for -2 the result is only the log's start. Raises
    UnsupportedVersion for the other special values, which version 0 does not know, OSError, and
    UnpackedTooLarge at a batch of more than `unpack_limit` bytes.
    """
    if timestamp == LookupTarget.EARLIEST:
        return [start_offset][:max_offsets]
    if timestamp == LookupTarget.LATEST:
        first = upper_offset
    elif is_target(timestamp):
        raise UnsupportedVersion(f"ListOffsets v0 has no timestamp {timestamp}")
    else:
        found = find_time(
            segments,
            timestamp,
            start_offset=start_offset,
            upper_offset=upper_offset,
            unpack_limit=unpack_limit,
        )
        first = upper_offset if found is None else found[0]
    bases = {max(segment.base_offset, start_offset) for segment in segments}
    earlier = sorted((base for base in bases if base < first), reverse=True)
    return [first, *earlier][: max(max_offsets, 0)]


def find_append_time(
    segments: Sequence[Segment],
    append_time_ms: int,
    *,
    start_offset: int,
    upper_offset: int,
    back_offset: int = 0,
) -> AppendedSince:
    """Returns where the batches appended at or after a time begin. Raises OSError.

    `back_offset` is the offset of the last reset of the append clock; 0 means none.
    """
    segments = [
        segment
        for segment in segments
        if segment.tail.size and segment.tail.end_offset > start_offset
    ]
    offset, unknown_from = _reach(segments, append_time_ms, back_offset)
    absent_from = None
    if offset is not None:
        reached = max(offset, start_offset)
        offset = _first_present(segments, reached, upper_offset)
        absent_from = max(_end_before(segments, reached), start_offset)
    end_offset = upper_offset if offset is None else min(offset, upper_offset)
    if unknown_from is not None:
        unknown_from = max(unknown_from, start_offset)
        if unknown_from >= end_offset:
            unknown_from = None
    if offset is None:
        return AppendedSince(None, None, unknown_from)
    if absent_from == offset:
        absent_from = None
    return AppendedSince(offset, append_time_of(segments, offset), unknown_from, absent_from)


def _reach(
    segments: Sequence[Segment], append_time_ms: int, back_offset: int
) -> tuple[int | None, int | None]:
    """Returns the first offset known to be at or after an append time, and the first doubtful one.

    Unknown append times before a known earlier time are not in doubt, unless append times decrease
    between them. An operator may have reset the append clock after a clock was ahead.
    """
    doubt = unknown_from = last_time = None
    for segment in segments:
        times, base_offset = segment.append_times, segment.base_offset
        reached = times.first_reaching(append_time_ms)
        if times.last_time is None:
            unknown_from = base_offset if unknown_from is None else unknown_from
            continue
        if unknown_from is not None and (
            unknown_from < back_offset <= base_offset or exceeds(last_time, times.first_known_time)
        ):
            doubt = unknown_from if doubt is None else doubt
        if reached.unknown_from is not None and reached.unknown_from > base_offset:
            unknown_from = reached.unknown_from
        elif reached.unknown_from == base_offset:
            unknown_from = base_offset if unknown_from is None else unknown_from
        elif reached.offset != base_offset:
            unknown_from = None
        if reached.offset is not None:
            return reached.offset, unknown_from if doubt is None else doubt
        last_time = times.last_time
    return None, unknown_from if doubt is None else doubt


def _first_present(segments: Sequence[Segment], offset: int, upper_offset: int) -> int | None:
    """Returns the first offset from `offset` on that has a record; compaction leaves holes."""
    found = _records_from(segments, offset, upper_offset)
    return next((record.offset for _, _, record in found), None)


def _end_before(segments: Sequence[Segment], offset: int) -> int:
    """Returns where the last batch ends that is wholly before an offset; 0 if there is none."""
    end_offset = 0
    for segment in segments:
        if segment.base_offset >= offset:
            break
        if segment.tail.end_offset <= offset:
            end_offset = segment.tail.end_offset
            continue
        tail = end_before(segment, offset)
        if tail.size:
            end_offset = tail.end_offset
    return end_offset


def _first_offset(data: Buffer, batch: Batch) -> int:
    """Returns a batch's first offset; in a wrapper of format 0 or 1 only the messages have it."""
    if batch.base_offset >= 0:
        return batch.base_offset
    return summarize(data, batch).base_offset


def append_time_of(segments: Sequence[Segment], offset: int) -> int | None:
    """Returns the append time of the batch at an offset, None if unknown. Raises OSError."""
    segment = slices.segment_of(segments, offset)
    return None if segment is None else segment.append_times.at(offset)


def _batch_at(segment: Segment, offset: int) -> Slice | None:
    """Reads the batch that holds an offset, or the next one of the segment."""
    return segment.read(offset, 1, upper_offset=segment.tail.end_offset, minimum_one=True)


def times_of(
    segments: Sequence[Segment], offset: int, *, start_offset: int, upper_offset: int
) -> OffsetTimes:
    """Returns both times of an offset.

    Raises OffsetOutOfRange for an offset before the log's start or after its end, CorruptMessage
    and OSError.
    """
    segment = slices.segment_of(segments, offset)
    if segment is None or not start_offset <= offset < upper_offset:
        raise OffsetOutOfRange(
            f"there is no offset {offset}: the log holds {start_offset} to {upper_offset - 1}"
            if start_offset < upper_offset
            else f"there is no offset {offset}: the log is empty, and its next offset is {upper_offset}"
        )
    part = _batch_at(segment, offset)
    if part is not None:
        data = bytes(part.data[: part.first_batch_size])
        batch = scan(data)[0]
        for record in records(data, batch):
            if record.offset == offset:
                return OffsetTimes(
                    CONTROL if batch.is_control else DATA,
                    None if batch.is_control else or_none(record.timestamp),
                    segment.append_times.at(offset),
                    batch.is_log_append_time,
                )
        if _first_offset(data, batch) <= offset:  # a part of its batch remains
            append_time = segment.append_times.at(offset)
            return OffsetTimes(ABSENT, None, append_time, is_log_append_time=False)
    return OffsetTimes(ABSENT, None, None, is_log_append_time=False)


def first_record(
    segments: Sequence[Segment], offset: int, *, start_offset: int, upper_offset: int
) -> tuple[int, OffsetTimes] | None:
    """Returns the first data record from an offset on, and both its times; None if there is none.

    Transaction markers and records that compaction removed are skipped. Raises CorruptMessage and
    OSError.
    """
    for segment, batch, record in _records_from(segments, max(offset, start_offset), upper_offset):
        if not batch.is_control:
            return record.offset, OffsetTimes(
                DATA,
                or_none(record.timestamp),
                segment.append_times.at(record.offset),
                batch.is_log_append_time,
            )
    return None


def _records_from(
    segments: Sequence[Segment], offset: int, upper_offset: int
) -> Iterator[tuple[Segment, Batch, Record]]:
    """Iterates over the records from an offset on and below another, transaction markers too."""
    for segment in segments:
        if segment.tail.end_offset <= offset:
            continue
        if segment.base_offset >= upper_offset:
            return
        at = segment.header_of(offset)
        for found in () if at is None else segment.walk(at.position):
            if found.batch.base_offset >= upper_offset:
                return
            for record in records(found.buffer, found.batch):
                if offset <= record.offset < upper_offset:
                    yield segment, found.batch, record


def size_before(segments: Sequence[Segment], offset: int, *, start_offset: int) -> int:
    """Returns the number of bytes of batches between the log's start and an offset. Raises OSError.

    A batch that holds one of the two offsets counts from its beginning, because batches are kept
    whole.
    """
    return max(_position_of(segments, offset) - _position_of(segments, start_offset), 0)


def _position_of(segments: Sequence[Segment], offset: int) -> int:
    """Returns how many bytes of these segments are before the batch that has an offset."""
    size = 0
    for segment in segments:
        if segment.tail.end_offset > offset:
            return size + (position_of(segment, offset) if segment.base_offset < offset else 0)
        size += segment.tail.size
    return size


def _largest_between(
    segment: Segment, start_offset: int, upper_offset: int, unpack_limit: int
) -> int | None:
    """Returns the largest time of a segment's records between two offsets, the second excluded."""
    largest: int | None = None
    for found in segment.walk():
        if found.batch.last_offset < start_offset:
            continue
        candidate = segment.indexes.largest_of(found, unpack_limit)
        if exceeds(candidate, largest):
            if not _lies_between(found, start_offset, upper_offset):
                candidate = _largest_of_records(found, start_offset, upper_offset, unpack_limit)
            if exceeds(candidate, largest):
                largest = candidate
        if found.batch.last_offset + 1 >= upper_offset:
            break
    return largest


def _lies_between(found: Found, start_offset: int, upper_offset: int) -> bool:
    return start_offset <= found.batch.base_offset and found.batch.last_offset < upper_offset


def _largest_of_records(
    found: Found, start_offset: int, upper_offset: int, unpack_limit: int
) -> int | None:
    largest: int | None = None
    for record in records(found.buffer, found.batch, unpack_limit):
        time = or_none(record.timestamp)
        if start_offset <= record.offset < upper_offset and exceeds(time, largest):
            largest = time
    return largest
