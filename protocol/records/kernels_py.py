"""The loops over records in plain Python: the twin of `_kernels.pyx`.

Same functions, same answers, same errors as the compiled module; one test class runs both. A
machine without a compiler serves from here, and a reader who wants to know what a kernel does
reads it here. No length is trusted: what does not add up is InvalidRecord inside a batch and
CorruptMessage where batches themselves cannot be told apart or an inner CRC is wrong.

Arguments of the loops begin with the fields of `layout.Region`: data, start, end, magic, count,
base_offset, base_timestamp, stamp. Integers wrap as int64, as every other implementation's do.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from crc32c import crc32c

from protocol.errors import CorruptMessage, InvalidRecord
from protocol.records.layout import (
    BATCH_NOT_FILLED,
    CODEC_MASK,
    COUNT_NEGATIVE,
    FIELD_LENGTH,
    FIELD_LONG,
    GAPS,
    HAS_HEADERS,
    HAS_MISSING,
    HEADER_NULL,
    HEADERS_NEGATIVE,
    LOG_APPEND_TIME_BIT,
    MESSAGE_CRC,
    MESSAGE_CUT,
    MESSAGE_HEAD,
    MESSAGE_HEAD_V1,
    MESSAGE_MAGIC,
    MESSAGE_NOT_FILLED,
    MESSAGE_OVERHEAD,
    MESSAGE_SIZE,
    NESTED,
    NO_TIMESTAMP,
    NULL_KEY,
    NUMBER_CUT,
    NUMBER_LONG,
    OUTSIDE,
    PREFIX_SIZE,
    RECORD_LONG,
    RECORD_NOT_FILLED,
    SMALLEST,
    V2_HEADER,
    Batch,
    Buffer,
    Findings,
    Record,
    Rewritten,
)
from protocol.records.plan import PreparedBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.plan import Plan

IMPLEMENTATION = "python"

_PREFIX = Struct(">qi")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_CRC = Struct(">I")

# (raw offset, time, key, value, (start, end) of the headers, is compressed)
_Raw = tuple[int, int, Buffer | None, Buffer | None, tuple[int, int], bool]


def _int64(value: int) -> int:
    """Return `value` wrapped to a signed 64-bit integer."""
    return ((value + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63


def _check_span(data: Buffer, start: int, end: int) -> None:
    """Raise ValueError for a caller's mistake: a span outside the buffer."""
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"{start}..{end} is not within {len(data)} bytes")


# --- batches -------------------------------------------------------------------------------------


def scan(data: Buffer, start: int, end: int) -> list[Batch]:
    """List the whole batches in data[start:end] from their headers alone.

    Stops before a trailing partial batch. Raises CorruptMessage for a size or magic no batch has.
    """
    _check_span(data, start, end)
    batches = []
    position = start
    while end - position >= PREFIX_SIZE:
        offset, size = _PREFIX.unpack_from(data, position)
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
        if magic == 2:
            batches.append(_v2_batch(data, position, size))
        else:
            batches.append(_message_batch(data, position, offset, size, magic))
        position = following
    return batches


def _v2_batch(data: Buffer, position: int, size: int) -> Batch:
    """Read the header of one format-2 batch."""
    fields = V2_HEADER.unpack_from(data, position)
    base, _, epoch, magic, _, attributes, last_delta, base_timestamp, max_timestamp = fields[:9]
    return Batch(
        position,
        PREFIX_SIZE + size,
        base,
        _int64(base + last_delta),
        magic,
        attributes,
        epoch,
        base_timestamp,
        max_timestamp,
        *fields[9:],
    )


def _message_batch(data: Buffer, position: int, offset: int, size: int, magic: int) -> Batch:
    """Read the header of one format-0/1 message."""
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


def find_offset(data: Buffer, offset: int, start: int, end: int) -> int:
    """Return the position of the first whole batch in data[start:end] that reaches `offset`.

    That is the first whose last offset is `offset` or more; the end of the whole batches where
    none is. Raises CorruptMessage as `scan` does.
    """
    _check_span(data, start, end)
    position = start
    while end - position >= PREFIX_SIZE:
        last, size = _PREFIX.unpack_from(data, position)
        if size < SMALLEST[0]:
            raise CorruptMessage(f"a batch at byte {position} claims {size} bytes")
        if position + PREFIX_SIZE + size > end:
            break
        magic = data[position + 16]
        if magic > 2:
            raise CorruptMessage(f"a batch at byte {position} has magic {magic}")
        if size < SMALLEST[magic]:
            raise CorruptMessage(f"a batch at byte {position} claims {size} bytes")
        if magic == 2:
            last = _int64(last + _INT32.unpack_from(data, position + 23)[0])
        if last >= offset:
            break
        position += PREFIX_SIZE + size
    return position


def checksum_ok(data: Buffer, position: int, size: int, magic: int) -> bool:
    """Tell whether the batch of `size` bytes at `position` has the CRC it carries.

    CRC-32 over magic and what follows for formats 0 and 1, CRC-32C over the attributes and what
    follows for format 2. `size` must be at least the smallest of the format (as from `scan`).
    """
    if position < 0 or size < PREFIX_SIZE + SMALLEST[magic] or size > len(data) - position:
        raise ValueError(f"{size} bytes at {position} are not a batch within {len(data)} bytes")
    view = memoryview(data)
    if magic == 2:
        (stored,) = _CRC.unpack_from(data, position + 17)
        return bool(stored == crc32c(view[position + 21 : position + size]))
    (stored,) = _CRC.unpack_from(data, position + 12)
    return bool(stored == crc32(view[position + 16 : position + size]))


def first_damaged(data: Buffer, batches: list[Batch]) -> int | None:
    """Return the position of the first of the scanned batches that fails its CRC, None if none."""
    for batch in batches:
        if not checksum_ok(data, batch[0], batch[1], batch[4]):
            return batch[0]
    return None


# --- records -------------------------------------------------------------------------------------


def _varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zig-zag varint of at most 32 bits; returns (value, position after)."""
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
    """Read a zig-zag varint of at most 64 bits; returns (value, position after)."""
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


def _bytes_field(data: Buffer, position: int, end: int) -> tuple[Buffer | None, int]:
    """Read a varint length (-1: null) and that many bytes; returns (field, position after)."""
    length, position = _varint(data, position, end)
    if length < 0:
        if length == -1:
            return None, position
        raise InvalidRecord(FIELD_LENGTH)
    if length > end - position:
        raise InvalidRecord(FIELD_LONG)
    return data[position : position + length], position + length


def _raw_v2(data: Buffer, start: int, end: int, count: int, base_timestamp: int) -> Iterator[_Raw]:
    """Yield the records of a format-2 batch; exactly `count` must fill data[start:end]."""
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
        key, position = _bytes_field(data, position, stop)
        value, position = _bytes_field(data, position, stop)
        header_count, position = _varint(data, position, stop)
        if header_count < 0:
            raise InvalidRecord(HEADERS_NEGATIVE)
        headers = position
        for _ in range(header_count):
            name, position = _bytes_field(data, position, stop)
            if name is None:
                raise InvalidRecord(HEADER_NULL)
            _, position = _bytes_field(data, position, stop)
        if position != stop:
            raise InvalidRecord(RECORD_NOT_FILLED)
        spans = (headers, stop)
        yield offset_delta, _int64(base_timestamp + delta), key, value, spans, False
    if position != end:
        raise InvalidRecord(BATCH_NOT_FILLED)


def _message_field(data: Buffer, position: int, end: int) -> tuple[Buffer | None, int]:
    """Read an int32 length (-1: null) and that many bytes; returns (field, position after)."""
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
) -> Iterator[_Raw]:
    """Yield the messages of format `magic` that must fill data[start:end]."""
    position = start
    while position < end:
        if end - position < PREFIX_SIZE:
            raise InvalidRecord(MESSAGE_CUT)
        offset, size = _PREFIX.unpack_from(data, position)
        if size < SMALLEST[0] or size > end - position - PREFIX_SIZE:
            raise InvalidRecord(MESSAGE_SIZE)
        if data[position + 16] != magic:
            raise InvalidRecord(MESSAGE_MAGIC)
        if size < MESSAGE_OVERHEAD[magic]:
            raise InvalidRecord(MESSAGE_SIZE)
        stop = position + PREFIX_SIZE + size
        if check_crc and not checksum_ok(data, position, PREFIX_SIZE + size, magic):
            raise CorruptMessage(MESSAGE_CRC)
        timestamp = _INT64.unpack_from(data, position + 18)[0] if magic else NO_TIMESTAMP
        nested = bool(data[position + 17] & CODEC_MASK)
        key, after = _message_field(data, position + 18 + 8 * magic, stop)
        value, after = _message_field(data, after, stop)
        if after != stop:
            raise InvalidRecord(MESSAGE_NOT_FILLED)
        yield offset, timestamp, key, value, (0, 0), nested
        position = stop


def _raw(
    data: Buffer,
    start: int,
    end: int,
    magic: int,
    count: int,
    base_timestamp: int,
    *,
    check_crc: bool = False,
) -> Iterator[_Raw]:
    """Yield the records of a region of any format, offsets as they are written there."""
    _check_span(data, start, end)
    if magic == 2:
        return _raw_v2(data, start, end, count, base_timestamp)
    return _raw_messages(data, start, end, magic, check_crc=check_crc)


def walk(
    data: Buffer,
    start: int,
    end: int,
    magic: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    stamp: int | None,
) -> Iterator[Record]:
    """Yield Record after Record: the readable, slow door. Raises InvalidRecord on the way."""
    raws = _raw(data, start, end, magic, count, base_timestamp)
    for offset, timestamp, key, value, (headers_start, stop), _ in raws:
        headers = []
        position = headers_start
        while position < stop:
            name, position = _bytes_field(data, position, stop)
            content, position = _bytes_field(data, position, stop)
            if name is not None:
                headers.append((bytes(name), None if content is None else bytes(content)))
        yield Record(
            _int64(base_offset + offset),
            timestamp if stamp is None else stamp,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            tuple(headers),
        )


def examine(
    data: Buffer,
    start: int,
    end: int,
    magic: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    stamp: int | None,
    minimum: int,
    maximum: int,
    check_crc: bool,
) -> Findings:
    """Look at every record once: count, offsets, times, and what `layout`'s flags name.

    A time that is not -1 and not within minimum..maximum (inclusive) sets OUTSIDE. With
    `check_crc` the CRC of every format-0/1 message is checked too. Raises InvalidRecord where
    lengths or counts do not add up, CorruptMessage for a CRC.
    """
    number = flags = 0
    first_offset = last_offset = -1
    largest: int | None = None
    first: int | None = None
    raws = _raw(data, start, end, magic, count, base_timestamp, check_crc=check_crc)
    for offset, own, key, _, (headers, stop), nested in raws:
        timestamp = own if stamp is None else stamp
        last_offset = _int64(base_offset + offset)
        if not number:
            first_offset = last_offset
        if offset != number:
            flags |= GAPS
        if timestamp == NO_TIMESTAMP:
            flags |= HAS_MISSING
        else:
            if first is None:
                first = timestamp
            if largest is None or timestamp > largest:
                largest = timestamp
            if not minimum <= timestamp <= maximum:
                flags |= OUTSIDE
        if key is None:
            flags |= NULL_KEY
        if headers != stop:
            flags |= HAS_HEADERS
        if nested:
            flags |= NESTED
        number += 1
    return Findings(number, first_offset, last_offset, largest, first, flags)


def find(
    data: Buffer,
    start: int,
    end: int,
    magic: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    stamp: int | None,
    timestamp: int,
    min_offset: int,
) -> tuple[int, int] | None:
    """Return (offset, time) of the first record at or after a time and an offset, else None.

    A record without a time is never found. What lies behind the found record is not looked at.
    """
    for raw in _raw(data, start, end, magic, count, base_timestamp):
        own = raw[1] if stamp is None else stamp
        offset = _int64(base_offset + raw[0])
        if own != NO_TIMESTAMP and own >= timestamp and offset >= min_offset:
            return offset, own
    return None


# --- writing -------------------------------------------------------------------------------------


def put_varint(out: bytearray, value: int) -> None:
    """Append `value` (an int64, taken modulo 2**64) as a zig-zag varint."""
    value = _int64(value)
    value = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_field(out: bytearray, field: Buffer | None) -> None:
    """Append a varint length (-1: null) and the bytes."""
    if field is None:
        out.append(1)
    else:
        put_varint(out, len(field))
        out += field


def put_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    header_count: int = 0,
    headers: Buffer = b"",
) -> None:
    """Append one format-2 record; `headers` are `header_count` encoded headers."""
    body = bytearray(1)
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    _put_field(body, key)
    _put_field(body, value)
    put_varint(body, header_count)
    body += headers
    put_varint(out, len(body))
    out += body


def put_message(
    out: bytearray,
    magic: int,
    offset: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    """Append one message of format 0 or 1, its CRC included."""
    start = len(out)
    size = MESSAGE_OVERHEAD[magic] + len(key or b"") + len(value or b"")
    if magic:
        out += MESSAGE_HEAD_V1.pack(offset, size, 0, magic, attributes, timestamp)
    else:
        out += MESSAGE_HEAD.pack(offset, size, 0, magic, attributes)
    for field in (key, value):
        out += _INT32.pack(-1 if field is None else len(field))
        if field is not None:
            out += field
    # The slice is a copy: a view on `out` would forbid it to grow.
    _CRC.pack_into(out, start + 12, crc32(out[start + 16 :]))


def stamp_messages(
    data: bytearray, start: int, end: int, first_offset: int, stamp: int | None
) -> None:
    """Number the plain messages that fill data[start:end], from `first_offset` on, in place.

    With a `stamp`, format-1 messages get it as their time, the LogAppendTime bit, and a new CRC.
    """
    _check_span(data, start, end)
    view = memoryview(data)
    position, offset = start, first_offset
    while position < end:
        if end - position < PREFIX_SIZE:
            raise InvalidRecord(MESSAGE_CUT)
        (size,) = _INT32.unpack_from(data, position + 8)
        if size < SMALLEST[0] or size > end - position - PREFIX_SIZE:
            raise InvalidRecord(MESSAGE_SIZE)
        if data[position + 16] and size < SMALLEST[1]:
            raise InvalidRecord(MESSAGE_SIZE)
        _INT64.pack_into(data, position, offset)
        stop = position + PREFIX_SIZE + size
        if stamp is not None and data[position + 16]:
            data[position + 17] |= LOG_APPEND_TIME_BIT
            _INT64.pack_into(data, position + 18, stamp)
            _CRC.pack_into(data, position + 12, crc32(view[position + 16 : stop]))
        position = stop
        offset = _int64(offset + 1)


def rewrite(
    data: Buffer,
    start: int,
    end: int,
    magic: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    stamp: int | None,
    target_magic: int,
    first_offset: int | None,
    min_offset: int,
    relative: bool,
) -> Rewritten:
    """Write the records of a region anew in another format (or the same).

    Records below `min_offset` are left out. Kept ones are numbered from `first_offset`, or keep
    their offsets when it is None; `relative` writes format-1 offsets relative to the first, as
    the inside of a wrapper has them. Format 2 gets offset deltas to the first kept record, and
    time deltas to its time. Onto format 0/1 headers are lost, and a `stamp` becomes every
    record's time, with the LogAppendTime bit in format 1. Raises InvalidRecord as `examine`.
    """
    out = bytearray()
    number = 0
    base = last = -1
    origin = NO_TIMESTAMP
    attributes = LOG_APPEND_TIME_BIT if stamp is not None and target_magic == 1 else 0
    raws = _raw(data, start, end, magic, count, base_timestamp)
    for raw_offset, own, key, value, (headers, stop), _ in raws:
        offset = _int64(base_offset + raw_offset)
        if offset < min_offset:
            continue
        if first_offset is not None:
            offset = _int64(first_offset + number)
        timestamp = own if stamp is None else stamp
        if not number:
            base, origin = offset, timestamp
        last = offset
        number += 1
        if target_magic == 2:
            encoded = data[headers:stop]
            put_record(
                out,
                offset - base,
                timestamp - origin,
                key,
                value,
                _header_count(encoded),
                encoded,
            )
        else:
            written = _int64(offset - base) if relative else offset
            put_message(out, target_magic, written, attributes, timestamp, key, value)
    return Rewritten(bytes(out), number, base, last, origin)


def _header_count(encoded: Buffer) -> int:
    """Count well-formed encoded headers."""
    number = position = 0
    while position < len(encoded):
        _, position = _bytes_field(encoded, position, len(encoded))
        _, position = _bytes_field(encoded, position, len(encoded))
        number += 1
    return number


def describe_messages(batches: list[Batch], plan: Plan) -> list[PreparedBatch]:
    """Describe plain messages, scanned from what lies gapless, as they will be in the log."""
    prepared = []
    position, offset = 0, plan.first_offset
    for batch in batches:
        own: int | None = batch.max_timestamp
        if not plan.magic or own == NO_TIMESTAMP:
            own = None
        if plan.magic and plan.log_append_time:
            own = plan.append_time_ms
        prepared.append(
            PreparedBatch(
                position,
                batch.size,
                offset,
                offset,
                1,
                own,
                offset,
                own,
                own is None,
                -1,
                -1,
                -1,
                False,
                False,
            )
        )
        position += batch.size
        offset += 1
    return prepared
