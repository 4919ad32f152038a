"""The few header fields of a stored batch that reading and recovery parse themselves.

Batches of all formats begin with an offset and a length, and have their magic at the same position:

    0   int64  formats 0 and 1: the message's own, or a wrapper's last, offset; format 2: the first one
    8   int32  how many bytes follow
    16  int8   magic
    23  int32  format 2: last offset minus first

Nothing is verified here: batches in the log were checked when they were appended.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import find_offset, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.protocol.records.batch import Batch
    from tidelog.protocol.wire import Buffer

PREFIX_SIZE = 12
HEADER_SIZE = 27  # enough of a batch of any format to know its offsets
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_LENGTH_AT = 8
_MAGIC_AT = 16
_DELTA_AT = 23
_FAR = 2**63 - 1


def batch_size(buffer: Buffer, position: int = 0) -> int | None:
    """Returns the size of the batch at a position, None if there are too few bytes."""
    if len(buffer) - position < PREFIX_SIZE:
        return None
    size: int = PREFIX_SIZE + _LENGTH.unpack_from(buffer, position + _LENGTH_AT)[0]
    return size


def last_offset_at(buffer: Buffer, position: int = 0) -> int | None:
    """Returns the last offset of the batch at a position, None if there are too few bytes.

    Formats 0 and 1 store the last offset first; format 2 stores the first offset, and the distance
    later.
    """
    remaining = len(buffer) - position
    if remaining <= _MAGIC_AT:
        return None
    (offset,) = _OFFSET.unpack_from(buffer, position)
    if buffer[position + _MAGIC_AT] >= 2:
        if remaining < HEADER_SIZE:
            return None
        offset += _LENGTH.unpack_from(buffer, position + _DELTA_AT)[0]
    last_offset: int = offset
    return last_offset


def scan_intact(buffer: Buffer) -> Iterator[Batch]:
    """Iterates over the whole batches of a buffer.

    Raises CorruptMessage at the first broken one.
    """
    try:
        yield from scan(buffer)
    except CorruptMessage:
        position = 0
        while True:  # raises again, at the broken one
            following = position + (batch_size(buffer, position) or 0)
            yield from scan(buffer, position, max(following, position + PREFIX_SIZE))
            position = following


def whole_size(buffer: Buffer) -> int:
    """Returns how many bytes at the start of a buffer are whole batches."""
    return find_offset(buffer, _FAR)


def intact_size(buffer: Buffer) -> int:
    """Returns how many bytes at the start of a buffer are whole batches with a possible header."""
    size = 0
    with contextlib.suppress(CorruptMessage):
        for batch in scan_intact(buffer):
            size = batch.position + batch.size
    return size


def first_offset_at(buffer: Buffer, position: int) -> int | None:
    """Returns the offset field of the batch at a position, None if there are too few bytes."""
    if len(buffer) - position < _OFFSET.size:
        return None
    offset: int = _OFFSET.unpack_from(buffer, position)[0]
    return offset


def below(view: memoryview, head: Buffer, upper_offset: int) -> memoryview:
    """Cuts a view before the first batch that reaches `upper_offset`.

    A batch that is only partly in the view is cut off too, unless it is the only one.
    """
    whole = find_offset(view, upper_offset)
    if whole:
        return view[:whole]
    last_offset = last_offset_at(head)
    return view if last_offset is not None and last_offset < upper_offset else view[:0]
