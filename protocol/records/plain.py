"""Writing the batches that the broker itself writes most: keys and values, nothing else, and fast."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.records.encode import put_varint
from tidelog.protocol.records.layout import (
    NO_PRODUCER_ID,
    PREFIX_SIZE,
    TRANSACTIONAL_BIT,
    V2_HEADER_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# The header in two parts: the fields that its checksum does not cover, and those that it does.
_HEAD = Struct(">qiibI").pack
_CHECKED = Struct(">hiqqqhii").pack


def _varint(number: int) -> bytes:
    """Returns a number of at least -1 as a zig-zag varint."""
    value = (number << 1) ^ (number >> 63)
    if value < 1 << 7:
        return value.to_bytes(1, "little")
    if value < 1 << 14:
        return (value & 0x7F | 0x80 | value >> 7 << 8).to_bytes(2, "little")
    if value < 1 << 21:
        middle = (value >> 7 & 0x7F | 0x80) << 8
        return (value & 0x7F | 0x80 | middle | value >> 14 << 16).to_bytes(3, "little")
    out = bytearray()
    put_varint(out, number)
    return bytes(out)


_VARINTS: Final = (*map(_varint, range(1024)), _varint(-1))
"""The varints of 0 to 1,023; the last one is that of -1."""


def build_plain(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    *,
    producer: tuple[int, int] | None = None,
) -> bytes:
    """Writes keys and values as one uncompressed format-2 batch, from offset 0 on, with one time.

    With the id and epoch of a `producer` the batch is part of its transaction, without a sequence. The
    bytes are the same as those of `build`, at a seventh of its cost: the broker writes such a
    batch for nearly every commit of a group, and one may have tens of thousands of offsets. Raises
    ValueError for no records.
    """
    return in_batch(written(pairs), timestamp, producer=producer)


class Plain(NamedTuple):
    """Records of one batch, written out but for its header, which says their time."""

    payload: bytes
    number: int
    size: int  # of their keys and values


def together(parts: Sequence[Plain]) -> Plain:
    """Returns the records of several parts, each of which `written` has begun where the one before ends."""
    payload = b"".join([part.payload for part in parts])
    return Plain(payload, sum(part.number for part in parts), sum(part.size for part in parts))


def written(pairs: Sequence[tuple[bytes, bytes | None]], start: int = 0) -> Plain:
    """Writes keys and values as records of a batch, the first of them at an offset within it."""
    parts: list[bytes] = []
    add, few, known, sum_size = parts.extend, len(_VARINTS) - 1, _VARINTS, 0
    for delta, (key, value) in enumerate(pairs, start):
        at, size = _varint(delta), len(key)
        key_size = known[size] if size < few else _varint(size)
        there = value or b""
        sum_size += size + len(there)
        length = -1 if value is None else len(there)
        value_size = known[length] if length < few else _varint(length)
        size += len(at) + len(key_size) + len(value_size) + len(there) + 3
        # No attributes, a time delta of 0, and no headers.
        record_size = known[size] if size < few else _varint(size)
        add((record_size, b"\0\0", at, key_size, key, value_size, there, b"\0"))
    return Plain(b"".join(parts), len(pairs), sum_size)


def in_batch(records: Plain, timestamp: int, *, producer: tuple[int, int] | None = None) -> bytes:
    """Returns records as a batch, as `build_plain` does. Raises ValueError for no records."""
    payload, count = records.payload, records.number
    if not count:
        raise ValueError("a batch needs a record")
    attributes = 0 if producer is None else TRANSACTIONAL_BIT
    producer_id, epoch = producer or (NO_PRODUCER_ID, -1)
    checked = _CHECKED(attributes, count - 1, timestamp, timestamp, producer_id, epoch, -1, count)
    crc = crc32c(payload, crc32c(checked))
    head = _HEAD(0, V2_HEADER_SIZE - PREFIX_SIZE + len(payload), -1, 2, crc)
    return b"".join((head, checked, payload))
