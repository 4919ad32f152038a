"""`append_set` in plain Python: the twin of the compiled function."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.errors import InvalidRecord
from tidelog.protocol.records.column_buffers import FULL, HEADERS, MORE, PAST, TIMES, BrokenBatch
from tidelog.protocol.records.decode import check_span, headers_of, raw_records, times_of
from tidelog.protocol.records.kernels.scan_py import read_header
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_SIZE,
    SMALLEST,
    TRANSACTIONAL_BIT,
    V2_HEADER_SIZE,
    Region,
    int64,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.records.column_buffers import ColumnBuffers, RecordSelection
    from tidelog.protocol.records.decode import Raw
    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer

_CRC = Struct(">I")
_ROW = Struct("=14q")
_NUMBER = Struct("=q")
_END = Struct("=i")
_ZSTD = 4


def append_set(
    data: Buffer,
    start: int,
    end: int,
    out: ColumnBuffers,
    wanted: RecordSelection,
    unpack: Callable[[Buffer, Batch], Region],
) -> tuple[int, int]:
    """Appends the wanted records of the batches in data[start:end]; see `columns.append_set`."""
    check_span(data, start, end)
    position = start
    while True:
        if out.filled() >= wanted.limit:
            return position, FULL
        if end - position < PREFIX_SIZE:
            return position, MORE
        offset, size = PREFIX.unpack_from(data, position)
        if size < SMALLEST[0]:
            raise BrokenBatch(position, offset, f"claims {size} bytes")
        if size > end - position - PREFIX_SIZE:
            return position, MORE
        magic = data[position + 16]
        if magic > 2:
            raise BrokenBatch(position, offset, f"has magic {magic}")
        if size < SMALLEST[magic]:
            raise BrokenBatch(position, offset, f"claims {size} bytes")
        batch = read_header(data, position, offset, size, magic)
        if batch.last_offset >= wanted.low_offset:
            is_wrapper = magic < 2 and batch.attributes & CODEC_MASK
            first = batch.base_offset
            if wanted.depth == HEADERS or is_wrapper:
                first = batch.last_offset
            if first >= wanted.high_offset and not (is_wrapper and wanted.depth != HEADERS):
                return position, PAST
            _append_batch(data, batch, offset, out, wanted, unpack)
        position += batch.size
        if batch.last_offset >= wanted.high_offset - 1:
            return position, PAST


def _append_batch(
    data: Buffer,
    batch: Batch,
    offset: int,
    out: ColumnBuffers,
    wanted: RecordSelection,
    unpack: Callable[[Buffer, Batch], Region],
) -> None:
    """Appends the row and the records of one batch, if they are wanted."""
    if wanted.timed and _is_outside(batch, wanted.low_time, wanted.high_time):
        return
    if wanted.depth != HEADERS and batch.magic == 2 and _is_left_out(batch, wanted):
        return
    _check(data, batch, offset, verify=wanted.verify)
    if wanted.depth != HEADERS:
        is_packed = batch.attributes & CODEC_MASK
        region = unpack(data, batch) if is_packed else _plain_region(data, batch)
        try:
            if wanted.depth == TIMES:
                _append_times(region, out, wanted)
            else:
                _append_records(region, out, wanted)
        except InvalidRecord as error:
            raise BrokenBatch(batch.position, offset, f"is broken: {error.message}") from error
    out.reserve_batches(1)
    _ROW.pack_into(out.batches, out.batch_count * _ROW.size, *batch, out.record_count)
    out.batch_count += 1


def _is_outside(batch: Batch, low: int, high: int) -> bool:
    """Returns whether, by the header of the batch alone, no record has a time from `low` to `high`."""
    if batch.magic == 0:
        return True
    time = batch.max_timestamp
    if batch.attributes & LOG_APPEND_TIME_BIT or (
        batch.magic == 1 and not batch.attributes & CODEC_MASK
    ):
        return time == NO_TIMESTAMP or not low <= time <= high
    return batch.magic == 2 and time < low


def _is_left_out(batch: Batch, wanted: RecordSelection) -> bool:
    """Returns whether a batch is a control batch or belongs to an aborted transaction."""
    if batch.attributes & CONTROL_BIT:
        return True
    if not batch.attributes & TRANSACTIONAL_BIT:
        return False
    spans = wanted.aborted.get(batch.producer_id, ())
    return any(first <= batch.base_offset <= last for first, last in spans)


def _check(data: Buffer, batch: Batch, offset: int, *, verify: bool) -> None:
    """Raises BrokenBatch if the CRC is wrong or the header is inconsistent."""
    position = batch.position
    if verify:
        view = memoryview(data)
        stop = position + batch.size
        if batch.magic == 2:
            is_good = _CRC.unpack_from(data, position + 17)[0] == crc32c(view[position + 21 : stop])
        else:
            is_good = _CRC.unpack_from(data, position + 12)[0] == crc32(view[position + 16 : stop])
        if not is_good:
            raise BrokenBatch(position, offset, "fails its CRC")
    codec = batch.attributes & CODEC_MASK
    if codec > _ZSTD - (batch.magic < 2):
        raise BrokenBatch(position, offset, f"names codec {codec}, which is none")
    if batch.magic == 2 and not (
        0 <= batch.count <= int64(batch.last_offset - batch.base_offset) + 1
    ):
        raise BrokenBatch(
            position,
            offset,
            f"claims {batch.count} records for offsets {batch.base_offset} to {batch.last_offset}",
        )


def _plain_region(data: Buffer, batch: Batch) -> Region:
    end = batch.position + batch.size
    if batch.magic < 2:
        return Region(data, batch.position, end, batch.magic, -1, 0, NO_TIMESTAMP, None)
    stamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
    start = batch.position + V2_HEADER_SIZE
    return Region(data, start, end, 2, batch.count, batch.base_offset, batch.base_timestamp, stamp)


def _is_kept(offset: int, time: int, wanted: RecordSelection) -> bool:
    if not wanted.low_offset <= offset < wanted.high_offset:
        return False
    if not wanted.timed:
        return True
    return time != NO_TIMESTAMP and wanted.low_time <= time <= wanted.high_time


def _append_times(region: Region, out: ColumnBuffers, wanted: RecordSelection) -> None:
    base_offset, stamp = region.base_offset, region.stamp
    kept = []
    for raw_offset, own in times_of(region):
        offset, time = int64(base_offset + raw_offset), own if stamp is None else stamp
        if _is_kept(offset, time, wanted):
            kept.append((offset, time))
    out.reserve_times(len(kept))
    for offset, time in kept:
        _put_time(out, offset, time)


def _put_time(out: ColumnBuffers, offset: int, time: int) -> None:
    _NUMBER.pack_into(out.offsets, out.record_count * _NUMBER.size, offset)
    _NUMBER.pack_into(out.timestamps, out.record_count * _NUMBER.size, time)
    out.record_count += 1


def _append_records(region: Region, out: ColumnBuffers, wanted: RecordSelection) -> None:
    data, base_offset, stamp = region.data, region.base_offset, region.stamp
    kept: list[tuple[int, int, Raw]] = []
    for raw in raw_records(region):
        offset, time = int64(base_offset + raw[0]), raw[1] if stamp is None else stamp
        if _is_kept(offset, time, wanted):
            kept.append((offset, time, raw))
    for offset, time, (_, _, key, value, span, _) in kept:
        headers = headers_of(data, *span)
        out.reserve(
            1,
            len(key or b""),
            len(value or b""),
            len(headers),
            sum(len(name) for name, _ in headers),
            sum(len(content or b"") for _, content in headers),
        )
        row = out.record_count
        out.key_bytes = _put(out.keys, out.key_bytes, out.key_ends, out.key_valid, row, key)
        out.value_bytes = _put(
            out.values, out.value_bytes, out.value_ends, out.value_valid, row, value
        )
        for name, content in headers:
            number = out.header_count
            out.header_key_bytes = _put(
                out.header_keys, out.header_key_bytes, out.header_key_ends, None, number, name
            )
            out.header_value_bytes = _put(
                out.header_values,
                out.header_value_bytes,
                out.header_value_ends,
                out.header_value_valid,
                number,
                content,
            )
            out.header_count += 1
        _END.pack_into(out.header_ends, (row + 1) * _END.size, out.header_count)
        _put_time(out, offset, time)


def _put(
    data: bytearray,
    used: int,
    ends: bytearray,
    valid: bytearray | None,
    row: int,
    field: Buffer | None,
) -> int:
    """Writes one field of a row; returns how much of `data` is then used."""
    if field is not None:
        data[used : used + len(field)] = field
        used += len(field)
        if valid is not None:
            valid[row >> 3] |= 1 << (row & 7)
    _END.pack_into(ends, (row + 1) * _END.size, used)
    return used
