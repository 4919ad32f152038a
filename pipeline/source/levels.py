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
from tidelog.pipeline.source.reading import HEADERS, RECORDS, TIMES, ReadOptions
from tidelog.pipeline.source.splits import SourceError
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Compression,
)
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from tidelog.pipeline.source.columns import Bools, Columns, Ints
    from tidelog.pipeline.source.splits import Split

    _Column = tuple[Any, Callable[[Columns], Any]]  # the Arrow type, and how values are found

RECORD: Final = "record"
TIME: Final = "time"
BATCH: Final = "batch"
SEGMENT: Final = "segment"
LEVELS: Final = (SEGMENT, BATCH, TIME, RECORD)
DEPTHS: Final = {SEGMENT: HEADERS, BATCH: HEADERS, TIME: TIMES, RECORD: RECORDS}

MOST_US: Final = (2**63 - 1) // 1000  # milliseconds that int64 microseconds can hold
_INSTANT: Any = pa.timestamp("us", "UTC")


# --- columns -------------------------------------------------------------------------------------


def known(times: Ints) -> Any:
    """Returns append times as an Arrow array, null for unknown ones."""
    return _or_null(times, times == UNKNOWN)


def instants(timestamp_ms: Ints, has_timestamp: Bools) -> Any:
    """Returns times as an Arrow array of microseconds, null for none or one that does not fit."""
    fits = has_timestamp & (timestamp_ms >= -MOST_US) & (timestamp_ms <= MOST_US)
    return pa.array(np.where(fits, timestamp_ms, 0) * 1000, pa.int64(), mask=~fits).cast(_INSTANT)


def _or_null(values: Ints, is_null: Bools | None) -> Any:
    return pa.array(values, mask=is_null if is_null is not None and is_null.any() else None)


def _same(value: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value), count)


def _field(
    index: int, kind: npt.DTypeLike = np.int64, *, unless: Callable[[Ints], Bools] | None = None
) -> Callable[[Columns], Any]:
    """Returns what finds a field of batches; it is null for those that `unless` marks."""

    def found(columns: Columns) -> Any:
        values = np.ascontiguousarray(columns.batches[:, index], kind)
        return _or_null(values, None if unless is None else unless(columns.batches))

    return found


def _is_wrapper(table: Ints) -> Bools:
    found: Bools = table[:, c.COUNT] < 0
    return found


def _has_no_times(table: Ints) -> Bools:
    found: Bools = table[:, c.MAGIC] == 0
    return found


def _has(table: Ints, bit: int) -> Bools:
    found: Bools = (table[:, c.MAGIC] == 2) & (table[:, c.ATTRIBUTES] & bit != 0)
    return found


def _codecs(columns: Columns) -> Any:
    numbers = (columns.batches[:, c.ATTRIBUTES] & CODEC_MASK).astype(np.int32)
    names = [*(codec.name.lower() for codec in Compression), *["unknown"] * 3]
    return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names)).cast(pa.string())


_OF_RECORDS: Final[dict[str, _Column]] = {
    "key": (pa.binary(), lambda some: some.key),
    "value": (pa.binary(), lambda some: some.value),
    "topic": (pa.string(), lambda some: _same(some.topic, len(some))),
    "partition": (pa.int32(), lambda some: _same(np.int32(some.partition), len(some))),
    "offset": (pa.int64(), lambda some: pa.array(some.offset)),
    "timestamp": (_INSTANT, lambda some: instants(some.timestamp_ms, some.has_timestamp)),
    "timestampType": (pa.int32(), lambda some: pa.array(some.timestamp_type)),
    "headers": (HEADERS_TYPE, lambda some: some.headers),
    "timestamp_ms": (pa.int64(), lambda some: pa.array(some.timestamp_ms)),
    "append_time_ms": (pa.int64(), lambda some: known(some.append_time_ms)),
    "has_timestamp": (pa.bool_(), lambda some: pa.array(some.has_timestamp)),
    "header_names": (HEADER_NAMES, lambda some: some.header_names),
}
_SHARED: Final = (
    *("topic", "partition", "offset", "timestamp_ms", "append_time_ms", "has_timestamp"),
    "timestampType",
)
_OF_TIMES: Final[dict[str, _Column]] = {
    **{name: _OF_RECORDS[name] for name in _SHARED},
    "producer_id": (pa.int64(), lambda some: pa.array(some.producer_id)),
    "size_bytes": (pa.int64(), lambda some: pa.array(some.size)),
}
_OF_BATCHES: Final[dict[str, _Column]] = {
    "topic": (pa.string(), lambda some: _same(some.topic, len(some.batches))),
    "partition": (pa.int32(), lambda some: _same(np.int32(some.partition), len(some.batches))),
    "base_offset": (pa.int64(), _field(c.BASE_OFFSET, unless=_is_wrapper)),
    "last_offset": (pa.int64(), _field(c.LAST_OFFSET)),
    "record_count": (pa.int64(), _field(c.COUNT, unless=_is_wrapper)),
    "size_bytes": (pa.int64(), _field(c.SIZE)),
    "position": (pa.int64(), _field(c.POSITION, unless=lambda table: table[:, c.POSITION] < 0)),
    "format": (pa.int32(), _field(c.MAGIC, np.int32)),
    "codec": (pa.string(), _codecs),
    "timestampType": (pa.int32(), lambda some: pa.array(some.batch_timestamp_type)),
    "base_timestamp_ms": (pa.int64(), _field(c.BASE_TIMESTAMP, unless=_has_no_times)),
    "max_timestamp_ms": (pa.int64(), _field(c.MAX_TIMESTAMP, unless=_has_no_times)),
    "append_time_ms": (pa.int64(), lambda some: known(some.batch_append_time_ms)),
    "producer_id": (pa.int64(), _field(c.PRODUCER_ID)),
    "producer_epoch": (pa.int32(), _field(c.PRODUCER_EPOCH, np.int32)),
    "base_sequence": (pa.int32(), _field(c.BASE_SEQUENCE, np.int32)),
    "leader_epoch": (pa.int32(), _field(c.LEADER_EPOCH, np.int32)),
    "is_transactional": (pa.bool_(), lambda some: pa.array(_has(some.batches, TRANSACTIONAL_BIT))),
    "is_control": (pa.bool_(), lambda some: pa.array(_has(some.batches, CONTROL_BIT))),
}
_COLUMNS: Final = {RECORD: _OF_RECORDS, TIME: _OF_TIMES, BATCH: _OF_BATCHES}
SCHEMAS: Final[dict[str, Any]] = {
    **{
        level: pa.schema([(name, kind) for name, (kind, _) in columns.items()])
        for level, columns in _COLUMNS.items()
    },
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


def rows(split: Split, level: str, options: ReadOptions) -> Iterator[Any]:
    """Yields the rows of a split as Arrow record batches of the level's schema.

    A row of level segment is the sum of one split, so plan one split a segment for it. Raises
    SourceError and OSError, as `read`.
    """
    if level == SEGMENT:
        yield _segment(split, options)
        return
    for columns in read(split, options):
        arrays = [values(columns) for _, values in _COLUMNS[level].values()]
        if len(arrays[0]):
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[level])


def _segment(split: Split, options: ReadOptions) -> Any:
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
        is_counted &= not _is_wrapper(table).any()
        is_data = ~_has(table, CONTROL_BIT)
        records += int(table[is_data, c.COUNT].sum())
        times = table[is_data & (table[:, c.MAX_TIMESTAMP] != NO_TIMESTAMP), c.MAX_TIMESTAMP]
        if len(times):
            largest = later(int(times.max()), largest)
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
