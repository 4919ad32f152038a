"""The layout of an archive: its columns, directories and file names.

    topic=<name>/event_date=<YYYY-MM-DD>/p00003-<first offset>-<last offset>.parquet
    topic=<name>/event_date=<YYYY-MM-DD>/merged-<digest>.parquet

The second kind is what `compact` writes. It may hold several partitions, one after the other and each
in row groups of its own; the digest is that of the names of the files it replaces.

The date is the UTC day of the event time in the proleptic Gregorian calendar. An event time of -1
ms belongs to the day before 1970-01-01. Records without a time are in the directory that Hive,
Spark and Arrow read as a null date. `timestamp_ms` is authoritative; `timestamp` is the same
instant where int64 microseconds can hold it. `header_names` is null unless the name of a header is
not UTF-8; then it holds the names as bytes.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.source import arrays, levels
from tidelog.pipeline.times import FIRST_MS, date_of
from tidelog.protocol.records.columns import ColumnBuffers
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tidelog.pipeline.source.columns import Columns

    Ints = npt.NDArray[np.int64]

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
_DATA: Final = re.compile(r"(p[0-9]{5,}-[0-9]{20}-[0-9]{20}|merged-[0-9a-f]{20})\.parquet")
_DAY_MS: Final = 86_400_000
_ROW_BYTES: Final = 64  # the size of the columns of fixed width
SCHEMA: Any = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", arrays.HEADERS),
        ("timestamp_ms", pa.int64()),
        ("append_time_ms", pa.int64()),
        ("has_timestamp", pa.bool_()),
        ("header_names", arrays.HEADER_NAMES),
    ]
)
REPLAYED: Final = ("key", "value", "offset", "headers", "timestamp_ms", "header_names")


def path_of(topic: str, partition: int, date: str | None, first: int, last: int) -> str:
    """Returns the name of the file for a partition's records of one date in a range of offsets."""
    name = f"p{partition:05d}-{first:020d}-{last:020d}.parquet"
    return f"{_directory_of(topic, date)}/{name}"


def merged_path_of(topic: str, date: str | None, replaced: Sequence[str]) -> str:
    """Returns the name of the file of one date that replaces these files."""
    digest = hashlib.sha256("\n".join(sorted(replaced)).encode()).hexdigest()[:20]
    return f"{_directory_of(topic, date)}/merged-{digest}.parquet"


def is_data(path: str) -> bool:
    """Returns whether a file below the topics has the name of one that a run writes."""
    return _DATA.fullmatch(path.rpartition("/")[2]) is not None


def _directory_of(topic: str, date: str | None) -> str:
    return f"topic={topic}/event_date={date or NO_DATE}"


def table_of(columns: Columns) -> tuple[Any, Ints]:
    """Returns the records as a table, and the approximate size of each record in bytes."""
    count = len(columns)
    made = [
        columns.key,
        columns.value,
        pa.repeat(pa.scalar(columns.partition, pa.int32()), count),
        pa.array(columns.offset),
        levels.instants(columns.timestamp_ms, columns.has_timestamp),
        pa.array(columns.timestamp_type),
        columns.headers,
        pa.array(columns.timestamp_ms),
        levels.known(columns.append_time_ms),
        pa.array(columns.has_timestamp),
        columns.header_names,
    ]
    return pa.Table.from_arrays(made, schema=SCHEMA), _sizes(columns.buffers)


def by_date(table: Any) -> Iterator[tuple[str | None, Any]]:
    """Splits a table by event date; rows without a time come last, and rows keep their order."""
    times = table.column("timestamp_ms").to_numpy()
    present = np.flatnonzero(times != NO_TIMESTAMP)
    days = np.floor_divide(times[present], _DAY_MS)
    order = np.argsort(days, kind="stable")
    ordered = days[order]
    edges = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(present[order], edges) if len(present) else ():
        day_ms = int(np.floor_divide(times[rows[0]], _DAY_MS)) * _DAY_MS
        yield date_of(max(day_ms, FIRST_MS)), table.take(pa.array(rows))
    missing = np.flatnonzero(times == NO_TIMESTAMP)
    if len(missing):
        yield None, table.take(pa.array(missing))


def dates_of(times: Ints) -> tuple[str | None, ...]:
    """Returns the different dates of these times, with None for records without a time."""
    present = times[times != NO_TIMESTAMP]
    days = np.unique(np.floor_divide(present, _DAY_MS)).tolist()
    found: list[str | None] = [date_of(max(day * _DAY_MS, FIRST_MS)) for day in days]
    return tuple(found if len(present) == len(times) else [*found, None])


def buffers_of(table: Any) -> ColumnBuffers:
    """Returns the columns of a file in the form that the encoder takes.

    `header_names` may be missing: then all names of headers are UTF-8.
    """
    made: Any = ColumnBuffers()
    made.record_count = table.num_rows
    times = _whole(table.column("timestamp_ms"))
    made.timestamps = np.ascontiguousarray(times.to_numpy(), np.int64).data.cast("B")
    made.key_ends, made.key_valid, made.keys = binary_parts(_whole(table.column("key")))
    made.value_ends, made.value_valid, made.values = binary_parts(_whole(table.column("value")))
    headers = _whole(table.column("headers"))
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    ends = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    made.header_ends = ends.tobytes()
    made.header_count = int(ends[-1])
    if made.header_count:
        flat = pc.list_flatten(headers)
        names = pc.struct_field(flat, "key")
        made.header_key_ends, _, made.header_keys = binary_parts(_exact(names, counts, table))
        made.header_value_ends, made.header_value_valid, made.header_values = binary_parts(
            pc.struct_field(flat, "value")
        )
    buffers: ColumnBuffers = made
    return buffers


def _exact(names: Any, counts: Ints, table: Any) -> Any:
    """Returns the names of headers, with the original bytes of names that are not UTF-8."""
    if "header_names" not in table.schema.names:
        return names
    odd = _whole(table.column("header_names"))
    if odd.null_count == len(odd):
        return names
    plain = iter(names.to_pylist())
    found: list[bytes] = []
    for count, exactly in zip(counts.tolist(), odd.to_pylist(), strict=True):
        shown = [next(plain) for _ in range(count)]
        found += [one.encode() for one in shown] if exactly is None else exactly
    return pa.array(found, pa.binary())


def _sizes(buffers: ColumnBuffers) -> Ints:
    count = buffers.record_count
    sizes = np.full(count, _ROW_BYTES, np.int64)
    for ends in (buffers.key_ends, buffers.value_ends):
        sizes += np.diff(_ends(ends, count))
    if buffers.header_count:
        spans = _ends(buffers.header_ends, count)
        for ends in (buffers.header_key_ends, buffers.header_value_ends):
            sizes += np.diff(_ends(ends, buffers.header_count)[spans])
        sizes += 8 * np.diff(spans)
    return sizes


def _ends(buffer: Any, count: int) -> npt.NDArray[np.int32]:
    return np.frombuffer(buffer, np.int32, count + 1)


def _whole(column: Any) -> Any:
    """Returns a column as one array that begins at the start of its buffers."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.take(pa.array(np.arange(len(array)))) if array.offset else array


def binary_parts(array: Any) -> tuple[Any, Any, Any]:
    """Returns the ends, the validity (empty if all are valid) and the bytes of an array."""
    array = _whole(array.cast(pa.binary()))
    valid, ends, data = array.buffers()
    return (
        ends if ends is not None and ends.size else bytes(4 * (len(array) + 1)),
        valid if valid is not None and array.null_count else b"",
        data if data is not None else b"",
    )
