"""`encode_rows` in plain Python: the twin of the compiled function."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.protocol.records.column_buffers import EncodedRows
from tidelog.protocol.records.encode import put_record, put_varint
from tidelog.protocol.records.layout import NO_TIMESTAMP, int64

if TYPE_CHECKING:
    from tidelog.protocol.records.column_buffers import ColumnBuffers
    from tidelog.protocol.wire import Buffer

_TIME = Struct("=q")
_SPAN = Struct("=ii")
_INT32 = Struct("=i")
_INT32_MAX = 2**31 - 1


def encode_rows(columns: ColumnBuffers, start: int, end: int, limit: int) -> EncodedRows:
    """Twin of the compiled function; see `kernels_py.encode_rows`."""
    if not 0 <= start < end <= columns.record_count:
        raise ValueError(f"rows {start} to {end} are not among {columns.record_count}")
    _check_lengths(columns, end)
    (base,) = _TIME.unpack_from(columns.timestamps, start * 8)
    out = bytearray()
    largest: int | None = None
    row = start
    for row in range(start, end):
        (timestamp,) = _TIME.unpack_from(columns.timestamps, row * 8)
        record = _record(columns, row, int64(timestamp - base), row - start)
        if row > start and len(out) + len(record) > limit:
            break
        out += record
        if timestamp != NO_TIMESTAMP and (largest is None or timestamp > largest):
            largest = timestamp
    else:
        row = end
    return EncodedRows(bytes(out), row, base, NO_TIMESTAMP if largest is None else largest)


def _record(columns: ColumnBuffers, row: int, delta: int, index: int) -> bytearray:
    first, last = _SPAN.unpack_from(columns.header_ends, row * 4)
    if not 0 <= first <= last <= columns.header_count:
        raise _unsound()
    headers = bytearray()
    for number in range(first, last):
        for ends, valid, data in (
            (columns.header_key_ends, b"", columns.header_keys),
            (columns.header_value_ends, columns.header_value_valid, columns.header_values),
        ):
            content = _given(ends, valid, data, number)
            put_varint(headers, -1 if content is None else len(content))
            headers += content or b""
    key = _given(columns.key_ends, columns.key_valid, columns.keys, row)
    value = _given(columns.value_ends, columns.value_valid, columns.values, row)
    record = bytearray()
    put_record(record, index, delta, key, value, last - first, headers)
    if len(record) > _INT32_MAX:
        raise _unsound()
    return record


def _given(ends: Buffer, valid: Buffer, data: Buffer, row: int) -> memoryview | None:
    if len(valid) and not valid[row >> 3] >> (row & 7) & 1:
        return None
    first, last = _SPAN.unpack_from(ends, row * 4)
    if not 0 <= first <= last <= len(data):
        raise _unsound()
    return memoryview(data)[first:last]


def partitions_of(ends: Buffer, valid: Buffer, data: Buffer, rows: int, count: int) -> bytes:
    """Twin of the compiled function; see `kernels_py.partitions_of`."""
    if rows < 0 or count < 1:
        raise ValueError(f"{rows} keys do not go to {count} partitions")
    if len(ends) < 4 * (rows + 1) or 0 < len(valid) < (rows + 7) // 8:
        raise ValueError("a column is shorter than its rows")
    chosen = []
    for row in range(rows):
        key = _given(ends, valid, data, row)
        chosen.append(-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count)
    return b"".join(map(_INT32.pack, chosen))


def murmur2(key: Buffer) -> int:
    """Returns the hash by which the Java clients choose a partition, as an unsigned int32."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    found = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(key[position : position + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        found = (found * m & mask) ^ k
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * m & mask
    found = (found ^ found >> 13) * m & mask
    return found ^ found >> 15


def _check_lengths(columns: ColumnBuffers, end: int) -> None:
    columns_of_bytes: list[tuple[Buffer, Buffer, int]] = [
        (columns.key_ends, columns.key_valid, end),
        (columns.value_ends, columns.value_valid, end),
    ]
    if columns.header_count:
        columns_of_bytes += [
            (columns.header_key_ends, b"", columns.header_count),
            (columns.header_value_ends, columns.header_value_valid, columns.header_count),
        ]
    short = len(columns.timestamps) < 8 * end or len(columns.header_ends) < 4 * (end + 1)
    for ends, valid, rows in columns_of_bytes:
        short |= len(ends) < 4 * (rows + 1) or 0 < len(valid) < (rows + 7) // 8
    if short:
        raise ValueError("a column is shorter than its rows")


def _unsound() -> ValueError:
    return ValueError("the ends of a column do not ascend within its data")
