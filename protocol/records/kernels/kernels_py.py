"""The loops over records in plain Python: the twin of `_kernels.pyx`.

The functions, results and errors are the same as in the compiled module; one test class runs both.
A machine without a compiler uses this module, and it documents what each kernel does. No length is
trusted: inconsistent data inside a batch raises InvalidRecord; batches that cannot be distinguished,
or a wrong inner CRC, raise CorruptMessage.

The loops over the records of one batch take a `layout.Region`. Integers wrap as int64, as in every
other implementation.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.errors import InvalidRecord, MessageTooLarge
from tidelog.protocol.records.decode import check_span, count_headers, raw_records
from tidelog.protocol.records.encode import put_message, put_record
from tidelog.protocol.records.kernels import columns_py, rows_py
from tidelog.protocol.records.kernels.key_map import KeyMap, select
from tidelog.protocol.records.kernels.scan_py import read_header, whole_batches
from tidelog.protocol.records.layout import (
    GAPS,
    HAS_HEADERS,
    HAS_MISSING,
    LOG_APPEND_TIME_BIT,
    MESSAGE_CUT,
    MESSAGE_SIZE,
    NESTED,
    NO_TIMESTAMP,
    NULL_KEY,
    OUTSIDE,
    PREFIX_SIZE,
    SMALLEST,
    TOO_LARGE,
    Batch,
    Findings,
    Rewritten,
    int64,
)
from tidelog.protocol.records.plan import PreparedBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.records.column_buffers import ColumnBuffers, EncodedRows, RecordSelection
    from tidelog.protocol.records.layout import OffsetAndTimestamp, Region
    from tidelog.protocol.records.plan import AppendPlan
    from tidelog.protocol.wire import Buffer

__all__ = [
    "IMPLEMENTATION",
    "KeyMap",
    "append_set",
    "checksum_ok",
    "describe_messages",
    "encode_rows",
    "examine",
    "find",
    "find_last",
    "find_offset",
    "find_other_format",
    "first_damaged",
    "offenders",
    "partitions_of",
    "rewrite",
    "scan",
    "select",
    "stamp_messages",
]

IMPLEMENTATION = "python"

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_CRC = Struct(">I")
_SIZE = Struct(">I")

# --- batches -------------------------------------------------------------------------------------


def scan(data: Buffer, start: int, end: int) -> list[Batch]:
    """Lists the whole batches in data[start:end] from their headers alone.

    Stops before a trailing partial batch. Raises CorruptMessage for an impossible size or magic.
    """
    return [read_header(data, *found) for found in whole_batches(data, start, end)]


def find_offset(data: Buffer, offset: int, start: int, end: int) -> int:
    """Returns the position of the first whole batch in data[start:end] that reaches `offset`.

    That is the first whose last offset is `offset` or more. If there is none, returns the end of
    the whole batches. Raises CorruptMessage as `scan` does.
    """
    stop = start
    for position, last, size, magic in whole_batches(data, start, end):
        if magic == 2:
            last = int64(last + _INT32.unpack_from(data, position + 23)[0])  # noqa: PLW2901
        if last >= offset:
            return position
        stop = position + PREFIX_SIZE + size
    return stop


def find_last(data: Buffer, start: int, end: int) -> int:
    """Returns the position of the last whole batch in data[start:end], or -1 if there is none.

    Raises CorruptMessage as `scan` does.
    """
    batches = scan(data, start, end)
    return batches[-1].position if batches else -1


def find_other_format(data: Buffer, magic: int, carried: int) -> int:
    """Returns the position of the first batch that is not of the format `magic`; else where data ends.

    Formats newer than `carried` count as `carried`. Data may end within a batch, also within the one that
    is found. Sizes are not checked.
    """
    position, end = 0, len(data)
    while position + 16 < end:
        if min(data[position + 16], carried) != magic:
            return position
        position += PREFIX_SIZE + _SIZE.unpack_from(data, position + 8)[0]
    return end


def checksum_ok(data: Buffer, position: int, size: int, magic: int) -> bool:
    """Returns whether the batch of `size` bytes at `position` has the CRC that it carries.

    Formats 0 and 1 have a CRC-32 over the magic and all that follows. Format 2 has a CRC-32C over
    the attributes and all that follows. `size` must be at least the smallest of the format (`scan`
    ensures that).
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
    """Returns the position of the first scanned batch that fails its CRC, or None."""
    for batch in batches:
        if not checksum_ok(data, batch[0], batch[1], batch[4]):
            return batch[0]
    return None


# --- records -------------------------------------------------------------------------------------


def examine(region: Region, minimum: int, maximum: int, check_crc: bool) -> Findings:
    """Reads every record once: count, offsets, times, and what the flags of `layout` name.

    A time that is not -1 and not within minimum..maximum (inclusive) sets OUTSIDE. With `check_crc`
    the CRC of every format-0/1 message is checked too. Raises InvalidRecord for inconsistent
    lengths or counts, and CorruptMessage for a wrong CRC.
    """
    number = flags = 0
    first_offset = last_offset = -1
    largest: int | None = None
    first: int | None = None
    base_offset, stamp = region.base_offset, region.stamp
    raws = raw_records(region, check_crc=check_crc)
    for offset, own, key, _, (headers, stop), nested in raws:
        timestamp = own if stamp is None else stamp
        last_offset = int64(base_offset + offset)
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


def offenders(
    region: Region, minimum: int, maximum: int, keyed: bool, most: int
) -> tuple[list[tuple[int, int, bool]], int, int]:
    """Names the records that a topic must refuse, by their index from 0.

    Returns the first `most` of them as (index, own time, whether the time is what is wrong), the
    number of records with a real time outside minimum..maximum, and the number of the others that
    lack a key although `keyed` requires one. The region's `base_offset` and `stamp` are ignored.
    """
    named: list[tuple[int, int, bool]] = []
    outside = keyless = 0
    for number, raw in enumerate(raw_records(region)):
        timestamp = raw[1]
        late = timestamp != NO_TIMESTAMP and not minimum <= timestamp <= maximum
        if late:
            outside += 1
        elif keyed and raw[2] is None:
            keyless += 1
        else:
            continue
        if len(named) < most:
            named.append((number, timestamp, late))
    return named, outside, keyless


def find(region: Region, timestamp: int, min_offset: int) -> OffsetAndTimestamp | None:
    """Returns (offset, time) of the first record at or after a time and an offset, or None.

    A record without a time is never found. Data after the found record is not read.
    """
    for raw in raw_records(region):
        own = raw[1] if region.stamp is None else region.stamp
        offset = int64(region.base_offset + raw[0])
        if own != NO_TIMESTAMP and own >= timestamp and offset >= min_offset:
            return offset, own
    return None


# --- writing -------------------------------------------------------------------------------------


def stamp_messages(
    data: bytearray, start: int, end: int, first_offset: int, stamp: int | None
) -> None:
    """Assigns offsets to the plain messages that fill data[start:end], from `first_offset` on, in place.

    With a `stamp`, format-1 messages get it as their time, the LogAppendTime bit, and a new CRC.
    """
    check_span(data, start, end)
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
        offset = int64(offset + 1)


def rewrite(
    region: Region,
    target_magic: int,
    first_offset: int | None,
    min_offset: int,
    relative: bool,
    limit: int,
) -> Rewritten:
    """Writes the records of a region in another format, or the same.

    Records below `min_offset` are dropped. The others are numbered from `first_offset`; if it is
    None they keep their offsets. `relative` writes format-1 offsets relative to the first, as they
    are inside a wrapper. Format 2 gets offset deltas from the first kept record, and time deltas
    from its time. Formats 0 and 1 lose headers; a `stamp` becomes the time of every record, with
    the LogAppendTime bit in format 1. Raises InvalidRecord as `examine` does, and MessageTooLarge
    before it writes much more than `limit` bytes.
    """
    data, base_offset, stamp = region.data, region.base_offset, region.stamp
    out = bytearray()
    number = 0
    base = last = -1
    origin = NO_TIMESTAMP
    attributes = LOG_APPEND_TIME_BIT if stamp is not None and target_magic == 1 else 0
    for raw_offset, own, key, value, (headers, stop), _ in raw_records(region):
        offset = int64(base_offset + raw_offset)
        if offset < min_offset:
            continue
        if first_offset is not None:
            offset = int64(first_offset + number)
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
                count_headers(encoded),
                encoded,
            )
        else:
            written = int64(offset - base) if relative else offset
            put_message(out, target_magic, written, attributes, timestamp, key, value)
        if len(out) > limit:
            raise MessageTooLarge(TOO_LARGE)
    return Rewritten(bytes(out), number, base, last, origin)


def describe_messages(batches: list[Batch], plan: AppendPlan) -> list[PreparedBatch]:
    """Describes plain messages, scanned from a set without gaps, as they will be in the log."""
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


# --- columns -------------------------------------------------------------------------------------


def append_set(
    data: Buffer,
    start: int,
    end: int,
    out: ColumnBuffers,
    wanted: RecordSelection,
    unpack: Callable[[Buffer, Batch], Region],
) -> tuple[int, int]:
    """Appends the wanted records of the batches in data[start:end]; see `columns.append_set`.

    `unpack` returns the decompressed region of a compressed batch, and raises BrokenBatch.
    """
    return columns_py.append_set(data, start, end, out, wanted, unpack)


def encode_rows(columns: ColumnBuffers, start: int, end: int, limit: int) -> EncodedRows:
    """Encodes rows from `start` to before `end` as records of one batch, offsets from 0 on.

    Encodes as many rows as fit into `limit` bytes, and at least one. Columns are not trusted:
    raises ValueError for ends that do not ascend within their data, and for buffers that are too
    short. An empty validity buffer means that no row is null.
    """
    return rows_py.encode_rows(columns, start, end, limit)


def partitions_of(ends: Buffer, valid: Buffer, data: Buffer, rows: int, count: int) -> bytes:
    """Returns the partition, of `count`, to which the Java clients send each key, as native int32.

    The partition is -1 for a null key. Raises ValueError as `encode_rows` does.
    """
    return rows_py.partitions_of(ends, valid, data, rows, count)
