"""The rows of a small table as records, in this process: the same bytes, in the same order, as on Spark.

`rows_in_process` is the rule: nobody has chosen Spark (by a master, its settings, spark-submit or a
SparkSession), the table is local files of at most SMALL_BYTES, unless the master is "inline", and
`local_files` and `texts` know how Spark reads and writes what is in them. Else NeedsSpark says why not.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.backfill import local_files, rows
from tidelog.pipeline.backfill.local_files import TIMESTAMP, NeedsSpark
from tidelog.pipeline.backfill.staging import AVRO, LARGEST_INT, drops, place_of
from tidelog.pipeline.backfill.tables import format_of
from tidelog.pipeline.backfill.texts import bytes_of, json_of
from tidelog.pipeline.backfill.wanted import check_partitions, unit_of_times, wanted
from tidelog.pipeline.options import INLINE
from tidelog.pipeline.source.arrays import HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.rows import Counts, Limits
    from tidelog.pipeline.jobs.backfill import BackfillOptions
    from tidelog.pipeline.session import TaskSession

SMALL_BYTES: Final = 32 << 20
"""What is made here in about the time that Spark takes to start: in files, and of Parquet in memory."""
_BATCH_ROWS: Final = 65_536
_ORDER: Final = ("timestamp_ms", "key", "value", "headers")


def rows_in_process(
    session: TaskSession, options: BackfillOptions, partition_count: int
) -> RowsInProcess:
    """Returns the rows of the table, in memory. Raises NeedsSpark, and UsageError as Spark's way does."""
    if session.chosen is not None:
        raise NeedsSpark(session.chosen)
    if getattr(options, "frame", None) is not None:
        raise NeedsSpark("the table is a DataFrame")
    if options.sql is not None or options.jdbc is not None:
        raise NeedsSpark("the table is a query of Spark or in a database")
    if options.format == AVRO:
        raise NeedsSpark("the values are of Avro")
    limit_bytes = math.inf if session.master == INLINE else SMALL_BYTES
    return RowsInProcess(options, partition_count, limit_bytes)


class RowsInProcess:
    """The rows of a table, in memory; the twin of `tidelog.pipeline.backfill.staging.RowsOnSpark`."""

    def __init__(self, options: BackfillOptions, partition_count: int, limit_bytes: float) -> None:
        """Reads the table. Raises UsageError for what the options cannot mean, and NeedsSpark."""
        self._options = options
        names, table, files = local_files.read(
            options, lambda names: wanted(options, names).all, limit_bytes
        )
        columns = {
            name: pa.concat_arrays([pa.array([], column.type), *column.chunks])
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        kinds = {
            name: local_files.NAMES.get(column.type, str(column.type))
            for name, column in columns.items()
        }
        unit = unit_of_times(options, kinds)
        self._how = rows.Staging(unit, options.time_zone, partition_count, options.time_column)
        found = wanted(options, names)
        count = table.num_rows
        numbers = (  # as far as Spark knows them too
            pa.concat_arrays([pa.array(range(1, n + 1), pa.int64()) for _, n in files])
            if format_of(options) == "parquet"
            else pa.nulls(count, pa.int64())
        )
        key = options.key_column
        self._batch = pa.record_batch(
            {
                "time": _times(columns[options.time_column], unit),
                "key": pa.nulls(count, pa.binary()) if key is None else bytes_of(columns[key]),
                "value": self._values(found.values, columns),
                "headers": _headers(found.headers, columns, count),
                "partition": _partitions(options.partition_column, columns, kinds, count),
                "file": pa.concat_arrays([pa.repeat(str(path), n) for path, n in files]),
                "row": numbers,
            }
        )

    def _values(self, names: Sequence[str], columns: Mapping[str, pa.Array]) -> pa.Array:
        if self._options.format != "raw":
            return json_of(names, [columns[name] for name in names])
        column = columns[names[0]]
        if not pa.types.is_string(column.type) and not pa.types.is_binary(column.type):
            raise NeedsSpark(f"raw values are of type {column.type}")
        return bytes_of(column)

    def count(self, limits: Limits) -> Counts:
        """Counts the rows. Raises PipelineError."""
        parts = (rows.counted(one, self._how.partition_count, limits) for one in self._staged)
        return functools.reduce(rows.Counts.plus, parts, rows.Counts())

    def stage(self, directory: Path, limits: Limits) -> None:
        """Writes the rows that are not left out, each partition in order. Raises PipelineError."""
        given = drops(self._options)
        parts = [rows.kept(one, limits, **given) for one in self._staged]
        found = pa.Table.from_batches(parts, rows.STAGED)
        directory.mkdir(parents=True)
        for partition in pc.unique(found.column("partition")).to_pylist():
            part = found.filter(pc.equal(found.column("partition"), partition)).select(_ORDER)
            place = directory / place_of(partition)
            place.mkdir()
            pq.write_table(_ordered(part), place / "rows.parquet", compression="zstd")

    @functools.cached_property
    def _staged(self) -> list[pa.RecordBatch]:
        starts = range(0, self._batch.num_rows, _BATCH_ROWS)
        return [rows.staged(self._batch.slice(start, _BATCH_ROWS), self._how) for start in starts]


def _times(column: pa.Array, unit: str) -> pa.Array:
    """Returns the time column for `rows.staged`."""
    kind = column.type
    if kind == TIMESTAMP:
        return column.cast(pa.int64())
    if pa.types.is_integer(kind):
        return column.cast(pa.string() if unit == "iso" else pa.int64())
    if unit == rows.LOCAL:
        return column.cast(pa.timestamp("us"))
    if not pa.types.is_string(kind):
        raise NeedsSpark(f"the times are of type {kind}")
    return column


def _headers(names: Sequence[str], columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    if not names:
        return pa.nulls(count, HEADERS)
    texts = [bytes_of(columns[name]).to_pylist() for name in names]
    return pa.array(
        [list(zip(names, row, strict=True)) for row in zip(*texts, strict=True)], HEADERS
    )


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


def _ordered(part: pa.Table) -> pa.Table:
    """Returns rows in the order of Spark: bytes by their unsigned values, null before all."""

    def rank(one: Any) -> tuple[Any, ...]:
        inner = [rank(pair["value"]) for pair in one] if isinstance(one, list) else one
        return (one is not None, inner)

    ranks = [[rank(one) for one in column.to_pylist()] for column in part.columns]
    order = sorted(range(part.num_rows), key=list(zip(*ranks, strict=True)).__getitem__)
    return part.take(pa.array(order, pa.int64()))
