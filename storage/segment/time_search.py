"""Finding by time in one segment: the first record at or after a time.

A lookup reads the time index, the offset index, and the batches from the entry on that it finds there. In a
segment that another program wrote, `survey` first verifies that its indexes are true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.records import batch as batches
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage.segment import survey
from tidelog.storage.time.lookup import reaches

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import OffsetAndTimestamp
    from tidelog.storage.segment.segment import Segment


def find_time(
    segment: Segment,
    timestamp: int,
    *,
    min_offset: int,
    upper_offset: int,
    unpack_limit: int = STORED_LIMIT,
) -> OffsetAndTimestamp | None:
    """Returns (offset, time) of the first data record at or after a time, in offset order.

    Looks only at records from `min_offset` on and before `upper_offset`; None if there is none. Raises
    UnpackedTooLarge at a batch of more than `unpack_limit` bytes.
    """
    largest_of = segment.indexes.largest_of
    for found in segment.walk(_search_from(segment, timestamp, min_offset)):
        batch = found.batch
        if batch.last_offset < min_offset:
            continue
        if reaches(largest_of(found, unpack_limit), timestamp):
            hit = batches.find_time(found.buffer, batch, timestamp, min_offset, unpack_limit)
            if hit is not None:
                return hit if hit[0] < upper_offset else None
        if batch.last_offset >= upper_offset:
            return None
    return None


def _search_from(segment: Segment, timestamp: int, min_offset: int) -> int:
    """Returns the position of a batch before which no matching record can be."""
    indexes = segment.indexes
    if not indexes.are_true and not segment.log.takes_appends:
        survey.verify(segment)
    entry = indexes.index.floor(min_offset)
    position = 0 if entry is None else entry.position
    if not indexes.are_true:
        return position
    reached_offset = _reached_by(segment, timestamp)  # this may build both indexes anew
    before = indexes.index.floor(reached_offset - 1)
    return position if before is None else max(position, before.position)


def _reached_by(segment: Segment, timestamp: int) -> int:
    """Returns an offset at or before which the largest time is first at or after a time.

    That is not so for times that no record of the segment reaches.
    """
    reached = segment.indexes.time_index.first_reaching(timestamp)
    return segment.times.largest_offset if reached is None else reached.offset


def reads_little(segment: Segment, timestamp: int, most_bytes: int) -> bool:
    """Returns whether `find_time` in the whole segment would read no more than `most_bytes`.

    It may otherwise have to rebuild an index, or walk the log. Does neither itself.
    """
    indexes = segment.indexes
    if not (indexes.are_true and indexes.are_in_memory):
        return False
    reached_offset, index = _reached_by(segment, timestamp), indexes.index
    start, end = index.floor(reached_offset - 1), index.after(reached_offset + 1)
    return (segment.tail.size if end is None else end.position) - (
        0 if start is None else start.position
    ) <= most_bytes
