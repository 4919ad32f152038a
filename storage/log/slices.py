"""Slices of a log from an offset on, as they are stored: the bytes of a fetch.

A read continues in the next segment at a segment's end, so it may return several slices. They are
never joined, and follow one another without a gap in the bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.batch import find_last
from tidelog.storage.log.large_batch import LargeBatch
from tidelog.storage.segment.batch_headers import last_offset_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.protocol.records.batch import Batch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.segment.searching import Slice
    from tidelog.storage.segment.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class Fetched(NamedTuple):
    """Slices of the log, in order; the last may end within a batch."""

    buffers: list[memoryview]
    size: int
    first_batch_size: int  # 0 if nothing was read


class SliceAppendTimes(NamedTuple):
    """The append times of a slice: entries of its segment's `.appendtimes`; none means unknown."""

    base_offset: int  # the segment's base offset
    entries: bytes


def read(
    segments: Sequence[Segment],
    offset: int,
    max_bytes: int,
    *,
    upper_offset: int,
    minimum_one: bool,
    may_block: bool = True,
) -> Fetched:
    """Reads from the batch that holds `offset`, or the next one, below `upper_offset`.

    See `Partition.read`; raises OSError, and WouldBlock without `may_block`.
    """
    buffers: list[memoryview] = []
    size = first_batch_size = 0
    max_bytes = max(max_bytes, 0)
    if not max_bytes and not minimum_one:
        return Fetched(buffers, size, first_batch_size)
    active = segments[-1]
    while offset < upper_offset:
        # Nearly all reads are of the active segment, and reach it without another call.
        read_part = active.read if offset >= active.base_offset else partial(_read_part, segments)
        part = read_part(
            offset,
            max_bytes - size,
            upper_offset=upper_offset,
            minimum_one=minimum_one and not size,
            may_block=may_block,
        )
        if part is None:
            break
        if not size:
            first_batch_size = part.first_batch_size
        if part.data:
            buffers.append(part.data)
            size += len(part.data)
        if part.next_offset is None or size >= max_bytes:
            break
        offset = part.next_offset
    # The same as Fetched(...), without the Python frame of a NamedTuple's constructor.
    return tuple.__new__(Fetched, (buffers, size, first_batch_size))


def append_times_of(segments: Sequence[Segment], fetched: Fetched) -> list[SliceAppendTimes]:
    """Returns the append times of the whole batches that were just read, slice by slice.

    There is at most one entry for each append time among them. Raises OSError and CorruptMessage.
    """
    times: list[SliceAppendTimes] = []
    for data in fetched.buffers:
        last = find_last(data)
        if last < 0:
            continue
        first_offset, last_offset = last_offset_at(data), last_offset_at(data, last)
        assert first_offset is not None
        assert last_offset is not None
        segment = segment_of(segments, first_offset)
        if segment is not None:
            entries = segment.append_times.entries_between(first_offset, last_offset)
            times.append(SliceAppendTimes(segment.base_offset, entries))
    return times


def end_of(buffers: Sequence[Buffer | LargeBatch], default: int) -> int:
    """Returns the offset behind the last whole batch of what was read; `default` if none is whole."""
    for data in reversed(buffers):
        if isinstance(data, LargeBatch):
            return data.batch.last_offset + 1
        last = find_last(data)
        last_offset = last_offset_at(data, last) if last >= 0 else None
        if last_offset is not None:
            return last_offset + 1
    return default


def last_batch(segments: Sequence[Segment]) -> Batch | None:
    """Returns the header of a log's last batch, None if there is none.

    Raises OSError and CorruptMessage.
    """
    for segment in reversed(segments):
        if segment.tail.size:
            found = segment.header_of(segment.tail.end_offset - 1)
            return None if found is None else found.batch
    return None


def batch_at(segments: Sequence[Segment], offset: int) -> Batch | None:
    """Returns the header of the batch that holds an offset; None if compaction has removed it.

    Raises OSError and CorruptMessage.
    """
    segment = segment_of(segments, offset)
    found = None if segment is None else segment.header_of(offset)
    return None if found is None or found.batch.base_offset > offset else found.batch


def segment_of(segments: Sequence[Segment], offset: int) -> Segment | None:
    """Returns the segment whose range has an offset, None if it is before all of them."""
    number = bisect_right(segments, offset, key=_BASE_OFFSET) - 1
    return segments[number] if number >= 0 else None


def _read_part(
    segments: Sequence[Segment],
    offset: int,
    max_bytes: int,
    *,
    upper_offset: int,
    minimum_one: bool,
    may_block: bool,
) -> Slice | None:
    """Reads from the first segment that has data from `offset` on."""
    number = len(segments) - 1
    if offset < segments[number].base_offset:
        number = max(bisect_right(segments, offset, key=_BASE_OFFSET) - 1, 0)
    for segment in segments[number:]:
        if segment.base_offset >= upper_offset:
            break
        part = segment.read(
            offset,
            max_bytes,
            upper_offset=upper_offset,
            minimum_one=minimum_one,
            may_block=may_block,
        )
        if part is not None:
            return part
    return None
