"""Finding the position of an offset in a log, and where a log is broken.

One read is usually enough: it begins at the index entry, and the batches before the offset are
skipped in memory. An index that does not match the log is dropped or rebuilt: the log is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import find_offset
from tidelog.storage import files
from tidelog.storage.segment.batch_headers import batch_size, intact_size, last_offset_at
from tidelog.storage.segment.log_file import Tail

if TYPE_CHECKING:
    from tidelog.storage.segment.log_file import LogFile
    from tidelog.storage.segment.log_indexes import LogIndexes
    from tidelog.storage.segment.segment import Segment

_SLACK = 8 * 1024  # read beyond max_bytes, for the batches between an index entry and the offset


class Slice(NamedTuple):
    """The result of reading one segment."""

    data: memoryview  # begins with the batch that holds the offset; may end within a batch
    first_batch_size: int
    next_offset: int | None  # the segment's end offset, if the data ends there


def locate(
    log: LogFile,
    indexes: LogIndexes,
    descriptor: files.Descriptor,
    offset: int,
    max_bytes: int,
    tail: Tail,
) -> tuple[bytes | memoryview, int]:
    """Returns bytes from the first batch that ends at or after `offset`, and its position.

    The position is the end of `tail` if there is none. Raises OSError and CorruptMessage.
    """
    index = indexes.index
    entry = index.floor(offset)
    position = 0 if entry is None else entry.position
    size = max_bytes + _SLACK
    while position < tail.size:
        data = files.read_at(descriptor, min(size, tail.size - position), position)
        if entry is not None and last_offset_at(data) != entry.offset:
            entry, position = None, 0
            if log.takes_appends:
                index.clear()
            else:
                indexes.rebuild()
            continue
        entry = None
        try:
            skipped = find_offset(data, offset)
        except CorruptMessage:
            raise broken_at(log, position + intact_size(data)) from None
        position += skipped
        last_offset = last_offset_at(data, skipped)
        if last_offset is not None and last_offset >= offset:
            return memoryview(data)[skipped:], position
        if last_offset is not None:  # a batch before the offset, larger than what was read
            position += batch_size(data, skipped) or 0
        elif not skipped:
            raise CorruptMessage(f"{log.path} ends within a batch at {position}")
    return b"", tail.size


def intact_part(log: LogFile, view: memoryview, position: int) -> memoryview:
    """Returns the batches of a view before one that is broken. Raises CorruptMessage if none is."""
    good = view[: intact_size(view)]
    if not good:
        raise broken_at(log, position)
    return good


def broken_at(log: LogFile, position: int) -> CorruptMessage:
    """Returns the error of a batch that cannot be read."""
    return CorruptMessage(f"{log.path} has a broken batch at {position}")


def position_of(segment: Segment, offset: int) -> int:
    """Returns the position of the batch at or after an offset, else the end; raises OSError."""
    log = segment.log
    return locate(log, segment.indexes, segment.reader(), offset, 0, log.tail)[1]


def end_before(segment: Segment, offset: int) -> Tail:
    """Returns where the last batch ends that lies completely before an offset.

    That is the segment's beginning if there is none. Raises OSError and CorruptMessage.
    """
    position = position_of(segment, offset)
    if position >= segment.tail.size:
        return segment.tail
    entry = segment.indexes.index.last_before(position - 1)
    end_offset = segment.base_offset
    for found in segment.walk(0 if entry is None else entry.position, position):
        end_offset = found.batch.last_offset + 1
    return Tail(end_offset, position)
