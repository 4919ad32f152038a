"""The part of backfill that Spark has in `tidelog.pipeline.backfill.staging`, in this process and in memory.

The records are the same, and so is their order: by time, key, value and headers, each null first.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.backfill import avro
from tidelog.pipeline.backfill.in_process.errors import NeedsSpark
from tidelog.pipeline.backfill.in_process.kinds import TIMESTAMP, name_of
from tidelog.pipeline.backfill.in_process.texts import bytes_of, json_of_rows
from tidelog.pipeline.backfill.rows import LOCAL, STAGED, Staging, staged
from tidelog.pipeline.backfill.staging import AVRO, LARGEST_INT, place_of
from tidelog.pipeline.backfill.tables import format_of
from tidelog.pipeline.backfill.wanted import check_partitions, unit_of_times, wanted
from tidelog.pipeline.engine.plausible import in_other_units
from tidelog.pipeline.source.arrays import HEADERS
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.avro import Schema
    from tidelog.pipeline.backfill.staging import Limits
    from tidelog.pipeline.jobs.backfill import BackfillOptions

_BATCH_ROWS: Final = 65_536
_ORDER: Final = ("timestamp_ms", "key", "value", "headers")


class RowsInProcess:
    """The rows of a table, in memory; the twin of `tidelog.pipeline.backfill.staging.RowsOnSpark`."""

    def __init__(
        self,
        names: Sequence[str],
        table: pa.Table,
        options: BackfillOptions,
        partition_count: int,
    ) -> None:
        """Makes keys, values and headers; `names` are those of all columns of the table.

        Raises UsageError for what the options cannot mean, and NeedsSpark.
        """
        columns = {name: _whole(table.column(name)) for name in table.column_names}
        kinds = {name: name_of(column.type) for name, column in columns.items()}
        found = wanted(options, names)
        unit = unit_of_times(options, kinds)
        self._options = options
        self._partition_count = partition_count
        self._how = Staging(unit, options.time_zone, partition_count, options.time_column)
        self._values = {name: columns[name] for name in found.values}
        count = table.num_rows
        self._batch = pa.record_batch(
            {
                "time": _times(columns[options.time_column], unit),
                "key": bytes_of(columns[options.key_column])
                if options.key_column
                else pa.nulls(count, pa.binary()),
                "value": self._value(found.values),
                "headers": _headers(found.headers, columns, count),
                "partition": _partitions(options.partition_column, columns, kinds, count),
                "file": pa.repeat(options.table, count),
                "row": pa.array(range(1, count + 1), pa.int64())
                if format_of(options) == "parquet"
                else pa.nulls(count, pa.int64()),
            }
        )
        self._staged: pa.Table | None = None

    def _value(self, names: Sequence[str]) -> pa.Array:
        columns = [self._values[name] for name in names]
        if self._options.format == AVRO:
            return pa.StructArray.from_arrays(columns, list(names))
        if self._options.format != "raw":
            return json_of_rows(names, columns)
        (column,) = columns
        if not pa.types.is_string(column.type) and not pa.types.is_binary(column.type):
            raise NeedsSpark(f"raw values are of type {name_of(column.type)}")
        return bytes_of(column)

    def count(self, limits: Limits) -> tuple[Any, ...]:
        """Counts rows, as `tidelog.pipeline.backfill.staging.count` does. Raises PipelineError."""
        rows = self._rows(None)
        stamp, partition = rows.column("timestamp_ms"), rows.column("partition")
        has_time = pc.and_(stamp.is_valid(), pc.not_equal(stamp, NO_TIMESTAMP))
        ends = pc.min_max(stamp).as_py()

        def those(condition: Any) -> int:
            return int(pc.sum(pc.and_kleene(has_time, condition)).as_py() or 0)

        elsewhere = pc.or_(
            pc.less(partition, 0), pc.greater_equal(partition, self._partition_count)
        )
        return (
            rows.num_rows,
            rows.num_rows - those(True),
            int(pc.sum(elsewhere).as_py() or 0),
            those(pc.less(stamp, limits.oldest_ms)),
            those(pc.greater(stamp, limits.newest_ms)),
            those(pc.less(stamp, limits.kept_ms)),
            ends["min"],
            ends["max"],
            _in_other_units(stamp.filter(has_time), limits.now_ms),
        )

    def stage(self, directory: Path, limits: Limits) -> None:
        """Writes the rows that are not left out, each partition in order. Raises PipelineError."""
        is_avro = self._options.format == AVRO
        rows = self._rows(avro.registered(self._table(), self._options) if is_avro else None)
        rows = _ordered(_kept(rows, self._options, limits))
        directory.mkdir(parents=True)
        for partition in pc.unique(rows.column("partition")).to_pylist():
            part = rows.filter(pc.equal(rows.column("partition"), partition))
            place = directory / place_of(partition)
            place.mkdir()
            pq.write_table(part.select(_ORDER), place / "rows.parquet", compression="zstd")

    def _rows(self, schema: Schema | None) -> pa.Table:
        """Returns the rows as they are staged, not yet in order."""
        if schema is None and self._staged is not None:
            return self._staged
        how = self._how
        if self._options.format == AVRO:
            how = how._replace(schema=schema or (avro.schema_of(self._table(), self._options), 0))
        parts = [
            staged(self._batch.slice(start, _BATCH_ROWS), how)
            for start in range(0, self._batch.num_rows, _BATCH_ROWS)
        ]
        found = pa.Table.from_batches(parts, STAGED)
        if schema is None:
            self._staged = found
        return found

    def _table(self) -> Any:
        """Returns what `pipeline.backfill.avro` asks a DataFrame for; no Spark is started."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = pa.schema([(name, column.type) for name, column in self._values.items()])
        found = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        return SimpleNamespace(columns=list(self._values), schema=found)


def _in_other_units(times: pa.ChunkedArray, now_ms: int) -> dict[str, int]:
    """Returns how many times look like those of another unit, by unit."""
    found = in_other_units(times.to_numpy(), now_ms)
    return {unit: int(np.count_nonzero(meant)) for unit, meant in found}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _times(column: pa.Array, unit: str) -> pa.Array:
    """Returns the time column for `rows.staged`. Raises NeedsSpark."""
    kind = column.type
    if kind == TIMESTAMP:
        return column.cast(pa.int64())
    if unit == LOCAL:
        return column.cast(pa.timestamp("us"))
    if pa.types.is_integer(kind):
        return column.cast(pa.string() if unit == "iso" else pa.int64())
    if not pa.types.is_string(kind):
        raise NeedsSpark(f"the times are of type {name_of(kind)}")
    return column


def _headers(names: Sequence[str], columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    if not names:
        return pa.nulls(count, HEADERS)
    values = pa.concat_arrays([bytes_of(columns[name]) for name in names])
    order = np.arange(count * len(names)).reshape(len(names), count).T.ravel()
    titles = pa.array(list(names) * count, pa.string())
    pairs = pa.StructArray.from_arrays([titles, values.take(pa.array(order))], ["key", "value"])
    ends = np.arange(count + 1, dtype=np.int32) * len(names)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs).cast(HEADERS)


def _partitions(
    name: str | None, columns: Mapping[str, pa.Array], kinds: Mapping[str, str], count: int
) -> pa.Array:
    """Returns the partitions that a column names; a number that is none is -1."""
    if name is None:
        return pa.nulls(count, pa.int32())
    check_partitions(name, kinds)
    column = columns[name].cast(pa.int64())
    fits = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, LARGEST_INT))
    return pc.if_else(fits, column, -1).cast(pa.int32())


def _kept(rows: pa.Table, options: BackfillOptions, limits: Limits) -> pa.Table:
    """Returns the rows without those that are to be left out."""
    stamp = rows.column("timestamp_ms")
    has_none = pc.or_kleene(stamp.is_null(), pc.equal(stamp, NO_TIMESTAMP))
    inside = pc.and_(
        pc.greater_equal(stamp, limits.oldest_ms), pc.less_equal(stamp, limits.newest_ms)
    )
    keep = pa.array(np.ones(rows.num_rows, bool))
    if options.without_time == "drop":
        keep = pc.and_(keep, pc.invert(has_none))
    if options.outside == "drop":
        keep = pc.and_(keep, pc.or_kleene(has_none, inside))
    return rows.filter(keep)


def _ordered(rows: pa.Table) -> pa.Table:
    """Returns rows in the order of Spark: bytes by their unsigned values, null before all."""
    keys = {"partition": rows.column("partition")}
    for name in ("timestamp_ms", "key", "value"):
        keys[f"has {name}"] = rows.column(name).is_valid().cast(pa.int8())
        keys[name] = rows.column(name)
    keys["headers"] = _ranks(rows.column("headers").to_pylist())
    return rows.take(pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]))


def _ranks(headers: Sequence[Sequence[Mapping[str, Any]] | None]) -> pa.Array:
    """Returns the place of each row's headers in the order of all; their names are the same."""
    found = [
        tuple((one["value"] is not None, one["value"] or b"") for one in each or ())
        for each in headers
    ]
    places = {one: number for number, one in enumerate(sorted(set(found)))}
    return pa.array([places[one] for one in found], pa.int64())
