"""Finding batches and reading their headers, in plain Python; see `kernels_py`."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.decode import check_span
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_SIZE,
    SMALLEST,
    V2_HEADER,
    Batch,
    int64,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.protocol.wire import Buffer

_INT64 = Struct(">q")


def whole_batches(data: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields position, offset, size after the prefix, and magic of each whole batch.

    Reads data[start:end]. The offset is the one in the prefix. Stops before a partial batch. Raises
    CorruptMessage for an impossible size or magic.
    """
    check_span(data, start, end)
    position = start
    while end - position >= PREFIX_SIZE:
        offset, size = PREFIX.unpack_from(data, position)
        if size < SMALLEST[0]:
            raise CorruptMessage(f"a batch at byte {position} claims {size} bytes")
        following = position + PREFIX_SIZE + size
        if following > end:
            break
        magic = data[position + 16]
        if magic > 2:
            raise CorruptMessage(f"a batch at byte {position} has magic {magic}")
        if size < SMALLEST[magic]:
            raise CorruptMessage(f"a batch at byte {position} claims {size} bytes")
        yield position, offset, size, magic
        position = following


def read_header(data: Buffer, position: int, offset: int, size: int, magic: int) -> Batch:
    """Reads the header of a whole batch; the other arguments are those of `whole_batches`."""
    if magic == 2:
        return _v2_batch(data, position, size)
    return _message_batch(data, position, offset, size, magic)


def _v2_batch(data: Buffer, position: int, size: int) -> Batch:
    """Reads the header of one format-2 batch."""
    fields = V2_HEADER.unpack_from(data, position)
    base, _, epoch, magic, _, attributes, last_delta, base_timestamp, max_timestamp = fields[:9]
    return Batch(
        position,
        PREFIX_SIZE + size,
        base,
        int64(base + last_delta),
        magic,
        attributes,
        epoch,
        base_timestamp,
        max_timestamp,
        *fields[9:],
    )


def _message_batch(data: Buffer, position: int, offset: int, size: int, magic: int) -> Batch:
    """Reads the header of one format-0/1 message."""
    attributes = data[position + 17]
    timestamp = _INT64.unpack_from(data, position + 18)[0] if magic else NO_TIMESTAMP
    plain = not attributes & CODEC_MASK
    return Batch(
        position,
        PREFIX_SIZE + size,
        offset if plain else -1,
        offset,
        magic,
        attributes,
        -1,
        timestamp,
        timestamp,
        -1,
        -1,
        -1,
        1 if plain else -1,
    )
