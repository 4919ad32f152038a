"""The levels of detail of a row: segment, batch, record time or record. Arrow schemas and batches.

    record    as Spark's Kafka source names it (key, value, topic, partition, offset, timestamp,
              timestampType, headers), and timestamp_ms, append_time_ms, has_timestamp, header_names
    time      the same without key, value, headers and timestamp; producer_id, and bytes in the log
    batch     the header of a batch, without decompression
    segment   a segment of a log directory, added up from its batches' headers

`timestamp_ms` is authoritative: any int64, -1 for no time. `timestamp` is the same instant if the
record has a time that fits int64 microseconds, else null. Unknown values are null, append times
above all. `header_names` is null unless the name of a header is not UTF-8; then it has all names of
the record as bytes, and `headers` has U+FFFD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tidelog.pipeline.source import columns as c
from tidelog.pipeline.source.access import read
from tidelog.pipeline.source.append_times import UNKNOWN
from tidelog.pipeline.source.arrays import HEADER_NAMES
from tidelog.pipeline.source.arrays import HEADERS as HEADERS_TYPE
from tidelog.pipeline.source.reading import HEADERS, RECORDS, TIMES, Options
from tidelog.pipeline.source.splits import SourceError
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Compression,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tidelog.pipeline.source.columns import Bools, Columns, Ints
    from tidelog.pipeline.source.splits import Split

RECORD: Final = "record"
TIME: Final = "time"
BATCH: Final = "batch"
SEGMENT: Final = "segment"
LEVELS: Final = (SEGMENT, BATCH, TIME, RECORD)
DEPTHS: Final = {SEGMENT: HEADERS, BATCH: HEADERS, TIME: TIMES, RECORD: RECORDS}

MOST_US: Final = (2**63 - 1) // 1000  # milliseconds that int64 microseconds can hold
_CODECS: Final = [codec.name.lower() for codec in Compression]

_INSTANT: Any = pa.timestamp("us", "UTC")
SCHEMAS: Final[dict[str, Any]] = {
    RECORD: pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", _INSTANT),
            ("timestampType", pa.int32()),
            ("headers", HEADERS_TYPE),
            ("timestamp_ms", pa.int64()),
            ("append_time_ms", pa.int64()),
            ("has_timestamp", pa.bool_()),
            ("header_names", HEADER_NAMES),
        ]
    ),
    TIME: pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp_ms", pa.int64()),
            ("append_time_ms", pa.int64()),
            ("has_timestamp", pa.bool_()),
            ("timestampType", pa.int32()),
            ("producer_id", pa.int64()),
            ("size_bytes", pa.int64()),
        ]
    ),
    BATCH: pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("base_offset", pa.int64()),
            ("last_offset", pa.int64()),
            ("record_count", pa.int64()),
            ("size_bytes", pa.int64()),
            ("position", pa.int64()),
            ("format", pa.int32()),
            ("codec", pa.string()),
            ("timestampType", pa.int32()),
            ("base_timestamp_ms", pa.int64()),
            ("max_timestamp_ms", pa.int64()),
            ("append_time_ms", pa.int64()),
            ("producer_id", pa.int64()),
            ("producer_epoch", pa.int32()),
            ("base_sequence", pa.int32()),
            ("leader_epoch", pa.int32()),
            ("is_transactional", pa.bool_()),
            ("is_control", pa.bool_()),
        ]
    ),
    SEGMENT: pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("base_offset", pa.int64()),
            ("end_offset", pa.int64()),
            ("size_bytes", pa.int64()),
            ("batch_count", pa.int64()),
            ("record_count", pa.int64()),
            ("max_timestamp_ms", pa.int64()),
            ("first_append_time_ms", pa.int64()),
            ("last_append_time_ms", pa.int64()),
            ("is_active", pa.bool_()),
            ("place", pa.string()),
        ]
    ),
}


def rows(split: Split, level: str, options: Options) -> Iterator[Any]:
    """Yields the rows of a split as Arrow record batches of the level's schema.

    A row of level segment is the sum of one split, so plan one split a segment for it. Raises
    SourceError and OSError, as `read`.
    """
    if level == SEGMENT:
        yield _segment(split, options)
        return
    make = {RECORD: _records, TIME: _times, BATCH: _batches}[level]
    for columns in read(split, options):
        arrays = make(columns)
        if len(arrays[0]):
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[level])


def _records(columns: Columns) -> list[Any]:
    count = len(columns)
    return [
        columns.key,
        columns.value,
        pa.repeat(pa.scalar(columns.topic), count),
        pa.repeat(pa.scalar(columns.partition, pa.int32()), count),
        pa.array(columns.offset),
        instants(columns.timestamp_ms, columns.has_timestamp),
        pa.array(columns.timestamp_type),
        columns.headers,
        pa.array(columns.timestamp_ms),
        known(columns.append_time_ms),
        pa.array(columns.has_timestamp),
        columns.header_names,
    ]


def _times(columns: Columns) -> list[Any]:
    count = len(columns)
    return [
        pa.repeat(pa.scalar(columns.topic), count),
        pa.repeat(pa.scalar(columns.partition, pa.int32()), count),
        pa.array(columns.offset),
        pa.array(columns.timestamp_ms),
        known(columns.append_time_ms),
        pa.array(columns.has_timestamp),
        pa.array(columns.timestamp_type),
        pa.array(columns.producer_id),
        pa.array(columns.size),
    ]


def _batches(columns: Columns) -> list[Any]:
    table = columns.batches
    count = len(table)
    attributes, magic = table[:, c.ATTRIBUTES], table[:, c.MAGIC]
    is_wrapper = table[:, c.COUNT] < 0
    codecs = pa.DictionaryArray.from_arrays(
        pa.array((attributes & CODEC_MASK).astype(np.int32)), pa.array(_CODECS + ["unknown"] * 3)
    )
    return [
        pa.repeat(pa.scalar(columns.topic), count),
        pa.repeat(pa.scalar(columns.partition, pa.int32()), count),
        _or_null(table[:, c.BASE_OFFSET], is_wrapper),
        _ints(table[:, c.LAST_OFFSET]),
        _or_null(table[:, c.COUNT], is_wrapper),
        _ints(table[:, c.SIZE]),
        _or_null(table[:, c.POSITION], table[:, c.POSITION] < 0),
        _ints(magic, np.int32),
        codecs.cast(pa.string()),
        pa.array(columns.batch_timestamp_type),
        _or_null(table[:, c.BASE_TIMESTAMP], magic == 0),
        _or_null(table[:, c.MAX_TIMESTAMP], magic == 0),
        known(columns.batch_append_time_ms),
        _ints(table[:, c.PRODUCER_ID]),
        _ints(table[:, c.PRODUCER_EPOCH], np.int32),
        _ints(table[:, c.BASE_SEQUENCE], np.int32),
        _ints(table[:, c.LEADER_EPOCH], np.int32),
        pa.array((magic == 2) & (attributes & TRANSACTIONAL_BIT != 0)),
        pa.array((magic == 2) & (attributes & CONTROL_BIT != 0)),
    ]


def _segment(split: Split, options: Options) -> Any:
    """Adds up the batches of a segment."""
    part = split.part
    if part is None:
        raise SourceError(f"level {SEGMENT} needs log directories: brokers show no segments")
    batches = size = records = 0
    is_counted = True
    largest = first = last = None
    for columns in read(split, options):
        table = columns.batches
        batches += len(table)
        size += int(table[:, c.SIZE].sum())
        is_counted &= not (table[:, c.COUNT] < 0).any()
        is_data = ~((table[:, c.MAGIC] == 2) & (table[:, c.ATTRIBUTES] & CONTROL_BIT != 0))
        records += int(table[is_data, c.COUNT].sum())
        times = table[is_data & (table[:, c.MAX_TIMESTAMP] != NO_TIMESTAMP), c.MAX_TIMESTAMP]
        if len(times):
            largest = int(times.max()) if largest is None else max(largest, int(times.max()))
        appended = columns.batch_append_time_ms
        appended = appended[appended != UNKNOWN]
        if len(appended):
            first = int(appended[0]) if first is None else first
            last = int(appended[-1])
    row = [
        split.topic,
        split.partition,
        split.start_offset,
        split.end_offset,
        size,
        batches,
        records if is_counted else None,
        largest,
        first,
        last,
        part.is_active,
        part.location,
    ]
    schema = SCHEMAS[SEGMENT]
    arrays = [pa.array([value], one.type) for value, one in zip(row, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def known(times: Ints) -> Any:
    """Returns append times as an Arrow array, null for unknown ones."""
    return _or_null(times, times == UNKNOWN)


def instants(timestamp_ms: Ints, has_timestamp: Bools) -> Any:
    """Returns times as an Arrow array of microseconds, null for none or one that does not fit."""
    fits = has_timestamp & (timestamp_ms >= -MOST_US) & (timestamp_ms <= MOST_US)
    return pa.array(np.where(fits, timestamp_ms, 0) * 1000, pa.int64(), mask=~fits).cast(_INSTANT)


def _or_null(values: Ints, is_null: Bools) -> Any:
    return pa.array(np.ascontiguousarray(values), mask=is_null if is_null.any() else None)


def _ints(values: Ints, kind: npt.DTypeLike = np.int64) -> Any:
    return pa.array(np.ascontiguousarray(values, kind))
