"""Verifying a segment after a crash, batch by batch: its end, and missing index entries.

A batch is good if its checksum is right and its offsets follow. Data before the recovery point was
durable and is not read again: the check begins after the last index entry before it. This module
cuts nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import summarize, verify
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from tidelog.storage.segment.time_index import TimeEntry
from tidelog.storage.time.timestamp import exceeds, or_none

if TYPE_CHECKING:
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.segment import Segment

NO_LIMIT = 2**63  # no segment follows

_log = logging.getLogger("tidelog.storage")


class Checked(NamedTuple):
    """The good part of a segment."""

    tail: Tail
    stamp: int | None  # the largest time of a LogAppendTime batch
    first_marker: int | None  # the offset of the first control batch that was read


def check(
    segment: Segment,
    recovery_point: int,
    limit_offset: int,
    index_interval_bytes: int,
    gaps_end: int,
    end_offset: int = NO_LIMIT,
) -> Checked:
    """Verifies a segment's batches from the recovery point on, and completes its index.

    Stops before a batch that reaches `end_offset`, to which a truncation was interrupted. A batch
    is good if its checksum is right and its offsets follow, below those of the next segment. A
    batch that begins after `gaps_end` must begin at exactly the next offset (see `gaps`); the base
    offset of format 2 is outside its checksum.
    """
    good = _starting_point(segment, recovery_point)
    bound = min(
        limit_offset, segment.base_offset + MAX_RELATIVE_OFFSET + 1
    )  # as precisely as an index has it
    segment.indexes.truncate(good)
    largest = segment.time_index.last()
    is_written_here = segment.base_offset >= gaps_end and segment.append_times.is_complete
    if is_written_here and not good.size:
        # We wrote it, and its indexes are built now.
        segment.indexes.is_true = segment.indexes.are_true = True
    stamp = first_marker = None
    try:
        for found in segment.walk(good.size):
            batch = found.batch
            if batch.last_offset >= end_offset:
                break
            verify(found.buffer, batch)
            if not _follows(found, good.end_offset, gaps_end) or batch.last_offset >= bound:
                raise CorruptMessage(f"offset {batch.base_offset} where {good[0]} comes next")
            candidate = segment.indexes.largest_of(found)
            if exceeds(candidate, None if largest is None else largest.timestamp):
                assert candidate is not None
                largest = TimeEntry(candidate, batch.last_offset)
            segment.indexes.note(batch, found.position, index_interval_bytes, largest)
            good = Tail(batch.last_offset + 1, found.position + batch.size)
            if first_marker is None and batch.is_control:
                first_marker = batch.base_offset
            if batch.is_log_append_time:
                seen = or_none(batch.max_timestamp)
                if exceeds(seen, stamp):
                    stamp = seen
    except CorruptMessage as error:
        _log.warning(
            "bad batch",
            extra={"segment": segment.path, "position": good.size, "reason": error.message},
        )
    if limit_offset != NO_LIMIT and largest is not None:
        segment.time_index.append(*largest)
    return Checked(good, stamp, first_marker)


def _starting_point(segment: Segment, recovery_point: int) -> Tail:
    """Returns where the check begins: after the last index entry before the recovery point.

    The result is (the next offset there, position). It is the segment's beginning if there is no
    entry, or if the entry is wrong; then the whole index is built again.
    """
    segment.indexes.read()
    entry = segment.index.floor(recovery_point - 1)
    if entry is not None:
        try:
            found = next(segment.walk(entry.position), None)
        except CorruptMessage:
            found = None
        if found is not None and found.batch.last_offset == entry.offset:
            return Tail(entry.offset + 1, entry.position + found.batch.size)
    segment.index.clear()
    segment.time_index.clear()
    return Tail(segment.base_offset, 0)


def _follows(found: Found, expected_offset: int, gaps_end: int) -> bool:
    """Returns whether a batch is valid where `expected_offset` is the next offset."""
    base_offset, last_offset = found.batch.base_offset, found.batch.last_offset
    if base_offset < 0:  # the header of a format-0/1 wrapper has only its last offset
        if last_offset < gaps_end:
            return last_offset >= expected_offset
        summary = summarize(found.buffer, found.batch)
        base_offset = summary.base_offset
        last_offset = summary.last_offset if summary.last_offset == last_offset else -1
    if base_offset > gaps_end:
        return base_offset == expected_offset <= last_offset
    return expected_offset <= base_offset <= last_offset
