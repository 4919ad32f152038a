"""Reading records one by one, in plain Python: for `batch.records` and the kernels' twin.

`raw_records` yields what is written in a region of any format. `walk` turns that into `Record`s,
with absolute offsets and the times that a consumer sees. No length is trusted: inconsistent data
raises InvalidRecord, a wrong inner CRC raises CorruptMessage. All integers wrap as int64.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.protocol.errors import CorruptMessage, InvalidRecord
from tidelog.protocol.records.layout import (
    BATCH_NOT_FILLED,
    CODEC_MASK,
    COUNT_NEGATIVE,
    FIELD_LENGTH,
    FIELD_LONG,
    HEADER_NULL,
    HEADERS_NEGATIVE,
    MESSAGE_CRC,
    MESSAGE_CUT,
    MESSAGE_MAGIC,
    MESSAGE_NOT_FILLED,
    MESSAGE_OVERHEAD,
    MESSAGE_SIZE,
    NO_TIMESTAMP,
    NUMBER_CUT,
    NUMBER_LONG,
    PREFIX,
    PREFIX_SIZE,
    RECORD_LONG,
    RECORD_NOT_FILLED,
    SMALLEST,
    Record,
    int64,
)
from tidelog.protocol.wire import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.protocol.records.layout import Region

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_CRC = Struct(">I")

# (raw offset, time, key, value, (start, end) of the headers, is compressed)
Raw = tuple[int, int, Buffer | None, Buffer | None, tuple[int, int], bool]


def check_span(data: Buffer, start: int, end: int) -> None:
    """Raises ValueError for a span outside the buffer, which is a caller's mistake."""
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"{start}..{end} is not within {len(data)} bytes")


def _varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Reads a zig-zag varint of at most 32 bits; returns (value, position after)."""
    value = shift = 0
    while True:
        if position >= end:
            raise InvalidRecord(NUMBER_CUT)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 28:
            raise InvalidRecord(NUMBER_LONG)


def _varlong(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Reads a zig-zag varint of at most 64 bits; returns (value, position after)."""
    value = shift = 0
    while True:
        if position >= end:
            raise InvalidRecord(NUMBER_CUT)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise InvalidRecord(NUMBER_LONG)


def bytes_field(data: Buffer, position: int, end: int) -> tuple[Buffer | None, int]:
    """Reads a varint length (-1: null) and that many bytes; returns (field, position after)."""
    length, position = _varint(data, position, end)
    if length < 0:
        if length == -1:
            return None, position
        raise InvalidRecord(FIELD_LENGTH)
    if length > end - position:
        raise InvalidRecord(FIELD_LONG)
    return data[position : position + length], position + length


def _raw_v2(data: Buffer, start: int, end: int, count: int, base_timestamp: int) -> Iterator[Raw]:
    """Yields the records of a format-2 batch; exactly `count` must fill data[start:end]."""
    if count < 0:
        raise InvalidRecord(COUNT_NEGATIVE)
    position = start
    for _ in range(count):
        length, position = _varint(data, position, end)
        if length < 0 or length > end - position:
            raise InvalidRecord(RECORD_LONG)
        stop = position + length
        delta, position = _varlong(data, position + 1, stop)
        offset_delta, position = _varint(data, position, stop)
        key, position = bytes_field(data, position, stop)
        value, position = bytes_field(data, position, stop)
        header_count, position = _varint(data, position, stop)
        if header_count < 0:
            raise InvalidRecord(HEADERS_NEGATIVE)
        headers = position
        for _ in range(header_count):
            name, position = bytes_field(data, position, stop)
            if name is None:
                raise InvalidRecord(HEADER_NULL)
            _, position = bytes_field(data, position, stop)
        if position != stop:
            raise InvalidRecord(RECORD_NOT_FILLED)
        spans = (headers, stop)
        yield offset_delta, int64(base_timestamp + delta), key, value, spans, False
    if position != end:
        raise InvalidRecord(BATCH_NOT_FILLED)


def _message_field(data: Buffer, position: int, end: int) -> tuple[Buffer | None, int]:
    """Reads an int32 length (-1: null) and that many bytes; returns (field, position after)."""
    if end - position < 4:
        raise InvalidRecord(MESSAGE_CUT)
    (length,) = _INT32.unpack_from(data, position)
    position += 4
    if length < 0:
        if length == -1:
            return None, position
        raise InvalidRecord(FIELD_LENGTH)
    if length > end - position:
        raise InvalidRecord(FIELD_LONG)
    return data[position : position + length], position + length


def _raw_messages(
    data: Buffer, start: int, end: int, magic: int, *, check_crc: bool
) -> Iterator[Raw]:
    """Yields the messages of format `magic` that must fill data[start:end]."""
    position = start
    while position < end:
        if end - position < PREFIX_SIZE:
            raise InvalidRecord(MESSAGE_CUT)
        offset, size = PREFIX.unpack_from(data, position)
        if size < SMALLEST[0] or size > end - position - PREFIX_SIZE:
            raise InvalidRecord(MESSAGE_SIZE)
        if data[position + 16] != magic:
            raise InvalidRecord(MESSAGE_MAGIC)
        if size < MESSAGE_OVERHEAD[magic]:
            raise InvalidRecord(MESSAGE_SIZE)
        stop = position + PREFIX_SIZE + size
        if (
            check_crc
            and crc32(data[position + 16 : stop]) != _CRC.unpack_from(data, position + 12)[0]
        ):
            raise CorruptMessage(MESSAGE_CRC)
        timestamp = _INT64.unpack_from(data, position + 18)[0] if magic else NO_TIMESTAMP
        nested = bool(data[position + 17] & CODEC_MASK)
        key, after = _message_field(data, position + 18 + 8 * magic, stop)
        value, after = _message_field(data, after, stop)
        if after != stop:
            raise InvalidRecord(MESSAGE_NOT_FILLED)
        yield offset, timestamp, key, value, (0, 0), nested
        position = stop


def raw_records(region: Region, *, check_crc: bool = False) -> Iterator[Raw]:
    """Yields the records of a region of any format, with the offsets that are written there."""
    data, start, end, magic, count, _, base_timestamp, _ = region
    check_span(data, start, end)
    if magic == 2:
        return _raw_v2(data, start, end, count, base_timestamp)
    return _raw_messages(data, start, end, magic, check_crc=check_crc)


def times_of(region: Region) -> Iterator[tuple[int, int]]:
    """Yields (written offset, time) of a region's records; other fields of format 2 are skipped."""
    data, start, end, magic, count, _, base_timestamp, _ = region
    if magic < 2:
        yield from ((raw[0], raw[1]) for raw in raw_records(region))
        return
    check_span(data, start, end)
    if count < 0:
        raise InvalidRecord(COUNT_NEGATIVE)
    position = start
    for _ in range(count):
        length, position = _varint(data, position, end)
        if length < 0 or length > end - position:
            raise InvalidRecord(RECORD_LONG)
        stop = position + length
        delta, after = _varlong(data, position + 1, stop)
        offset_delta, _ = _varint(data, after, stop)
        yield offset_delta, int64(base_timestamp + delta)
        position = stop
    if position != end:
        raise InvalidRecord(BATCH_NOT_FILLED)


def walk(region: Region) -> Iterator[Record]:
    """Yields the records of a region as `Record`s, slowly. Raises InvalidRecord at a broken one."""
    data, base_offset, stamp = region.data, region.base_offset, region.stamp
    for offset, timestamp, key, value, (headers_start, stop), _ in raw_records(region):
        yield Record(
            int64(base_offset + offset),
            timestamp if stamp is None else stamp,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            tuple(headers_of(data, headers_start, stop)),
        )


def headers_of(data: Buffer, position: int, stop: int) -> list[tuple[bytes, bytes | None]]:
    """Reads the well-formed headers in data[position:stop]."""
    headers = []
    while position < stop:
        name, position = bytes_field(data, position, stop)
        content, position = bytes_field(data, position, stop)
        if name is not None:
            headers.append((bytes(name), None if content is None else bytes(content)))
    return headers


def count_headers(encoded: Buffer) -> int:
    """Counts well-formed encoded headers."""
    number = position = 0
    while position < len(encoded):
        _, position = bytes_field(encoded, position, len(encoded))
        _, position = bytes_field(encoded, position, len(encoded))
        number += 1
    return number
