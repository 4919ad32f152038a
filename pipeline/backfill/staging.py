"""The Spark part of backfill: makes records of rows, counts them, and stages them as sorted Parquet.

The JVM makes JSON (`to_json`) and headers. Python parses times, assigns keys to partitions and encodes
Avro, a batch at a time. The order is total (time, key, value, headers), so a partition that is staged
twice has the same contents.
"""

from __future__ import annotations

import urllib.parse
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.arrival import arrive, home
from tidelog.pipeline.backfill import avro
from tidelog.pipeline.backfill.rows import LOCAL, Staging
from tidelog.pipeline.backfill.wanted import check_partitions, unit_of_times, wanted
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.arrivals import unit_mismatch_ranges, usual_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.avro import Schema
    from tidelog.pipeline.jobs.backfill import BackfillOptions

AVRO: Final = "avro"
_PARTITION: Final = "partition="
LARGEST_INT: Final = 2**31 - 1
_ROWS_PER_FILE: Final = 5_000_000
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_STAGED: Final = f"partition int, timestamp_ms bigint, key binary, value binary, headers {_HEADERS}"
# Spark's own format ends at milliseconds, and writes times in the zone of the session.
_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


class Limits(NamedTuple):
    """The oldest and newest time that the topic accepts, and the oldest that its retention keeps.

    `now_ms` is for the rule by which a time looks like one of another unit.
    """

    oldest_ms: int
    newest_ms: int
    kept_ms: int
    now_ms: int


class RowsOnSpark:
    """The rows of a table, which Spark reads once to count them and once to stage them."""

    def __init__(self, table: Any, options: BackfillOptions, partition_count: int) -> None:
        """Raises UsageError for what the options cannot mean."""
        self._table, self._options, self._partition_count = table, options, partition_count
        self._frame = rows(table, options, partition_count)

    def count(self, limits: Limits) -> tuple[Any, ...]:
        """Counts the rows, as `count` says."""
        return count(self._frame, self._partition_count, *limits)

    def stage(self, directory: Path, limits: Limits) -> None:
        """Writes the rows that are not left out, each partition in order."""
        frame = self._frame
        if self._options.format == AVRO:  # registered only now, when nothing is refused
            schema = avro.registered(self._table, self._options)
            frame = rows(self._table, self._options, self._partition_count, schema)
        stage(kept(frame, self._options, limits), directory, self._partition_count)


def rows(
    table: Any, options: BackfillOptions, partition_count: int, schema: Schema | None = None
) -> Any:
    """Returns the rows to stage, not yet in order. Raises UsageError for a missing column.

    `schema` is that of Avro values; without one they are made as by schema 0, to be counted alone.
    """
    from pyspark.sql import functions as sql

    kinds = dict(table.dtypes)
    names = wanted(options, table.columns)
    unit = unit_of_times(options, kinds)
    file, row = _place(sql, table)
    frame = table.select(
        _time(sql, options.time_column, kinds, unit).alias("time"),
        _text(sql, options.key_column, table).alias("key"),
        _value(sql, options, names.values).alias("value"),
        _headers(sql, names.headers, table).alias("headers"),
        _partition(sql, options.partition_column, kinds).alias("partition"),
        file.alias("file"),
        row.alias("row"),
    )
    if options.format == AVRO and schema is None:
        schema = avro.Schema(avro.schema_of(table, options), 0)
    how = Staging(unit, options.time_zone, partition_count, options.time_column, schema)
    with warnings.catch_warnings():  # PySpark warns about a new pandas, which is not used here
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        return frame.mapInArrow(_stager(how), _STAGED)


def _time(sql: Any, name: str, kinds: Mapping[str, str], unit: str) -> Any:
    """Returns the time column for the engine, which knows times in this unit."""
    column = _column(sql, name)
    if kinds[name] == "timestamp":
        return sql.unix_micros(column)
    if unit == LOCAL:
        return column.cast("timestamp_ntz")
    # Texts are read in Python, which says where one is that is no number.
    return column.cast("string" if unit == "iso" or kinds[name] == "string" else "bigint")


def _place(sql: Any, table: Any) -> tuple[Any, Any]:
    """Returns the file of each row, and its number there, as far as Spark knows them."""
    from pyspark.errors import AnalysisException

    nothing = sql.lit(None)
    file, row = sql.expr("_metadata.file_path"), sql.expr("_metadata.row_index + 1")
    for found in ((file, row), (file, nothing.cast("bigint"))):
        try:
            table.select(*found)
        except AnalysisException:  # only some formats of files have them
            continue
        return found
    return nothing.cast("string"), nothing.cast("bigint")


def _column(sql: Any, name: str) -> Any:
    return sql.col("`" + name.replace("`", "``") + "`")


def _text(sql: Any, name: str | None, table: Any) -> Any:
    """Returns a column as bytes: its text, or what it is if it is bytes."""
    if name is None:
        return sql.lit(None).cast("binary")
    if dict(table.dtypes)[name] == "binary":
        return _column(sql, name)
    return _column(sql, name).cast("string").cast("binary")


def _headers(sql: Any, names: Sequence[str], table: Any) -> Any:
    kinds = dict(table.dtypes)
    parts = [
        sql.coalesce(_column(sql, name).cast(_HEADERS), sql.array().cast(_HEADERS))
        if kinds[name].startswith("array<struct<")
        else sql.array(
            sql.struct(sql.lit(name).alias("key"), _text(sql, name, table).alias("value"))
        ).cast(_HEADERS)
        for name in names
    ]
    return sql.concat(*parts) if parts else sql.lit(None).cast(_HEADERS)


def _partition(sql: Any, name: str | None, kinds: Mapping[str, str]) -> Any:
    if name is None:
        return sql.lit(None).cast("int")
    check_partitions(name, kinds)
    column = _column(sql, name)
    # A larger number is in no topic either. Without ANSI mode Spark would cut it off to another one.
    fits = column.between(0, LARGEST_INT)
    return sql.when(fits, column.cast("int")).when(column.isNotNull(), sql.lit(-1))


def _value(sql: Any, options: BackfillOptions, names: Sequence[str]) -> Any:
    if options.format == "raw":
        return _column(sql, names[0]).cast("binary")
    columns = sql.struct(*(_column(sql, name) for name in names))
    return columns if options.format == AVRO else sql.to_json(columns, _JSON).cast("binary")


def _stager(how: Staging) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for mapInArrow, nested to be pickled by value (see `tidelog.pipeline.tasks`)."""
    place = tuple(home())
    # Of types that a worker knows.
    fields: tuple[Any, ...] = (*how[:-1], how.schema and tuple(how.schema))

    def stage_batches(batches: Iterator[Any]) -> Iterator[Any]:
        arrive(*place)
        from tidelog.pipeline.backfill import rows as engine

        for batch in batches:
            yield engine.staged(batch, engine.Staging(*fields))

    stage_batches.__module__ = "__main__"
    return stage_batches


def count(
    frame: Any, partition_count: int, oldest_ms: int, newest_ms: int, kept_ms: int, now_ms: int
) -> tuple[Any, ...]:
    """Counts rows.

    Returns all, those without a time, in no partition of the topic, too old, too new, past retention,
    the first and the last time, and by unit those whose times look like another one than ms.
    """
    from pyspark.sql import functions as sql

    stamp = sql.col("timestamp_ms")
    has_time = stamp.isNotNull() & (stamp != NO_TIMESTAMP)

    def those(condition: Any) -> Any:
        return sql.count_if(sql.coalesce(condition, sql.lit(False)))

    low, high = usual_range(now_ms)
    units = unit_mismatch_ranges(now_ms)
    left = has_time & ((stamp < low) | (stamp > high))
    of_units = []
    for _, first, last in units:
        of_units.append(those(left & stamp.between(first, last)))
        left &= ~stamp.between(first, last)
    row = frame.agg(
        sql.count(sql.lit(1)),
        those(stamp.isNull() | (stamp == NO_TIMESTAMP)),
        those((sql.col("partition") < 0) | (sql.col("partition") >= partition_count)),
        those(has_time & (stamp < oldest_ms)),
        those(has_time & (stamp > newest_ms)),
        those(has_time & (stamp < kept_ms)),
        sql.min(stamp),
        sql.max(stamp),
        *of_units,
    ).first()
    found = tuple(row)
    by_unit = zip(units, found[-len(units) :], strict=True)
    return *found[: -len(units)], {unit: count for (unit, _, _), count in by_unit if count}


def kept(frame: Any, options: BackfillOptions, limits: Limits) -> Any:
    """Returns the rows without those that are to be left out."""
    from pyspark.sql import functions as sql

    stamp = sql.col("timestamp_ms")
    if options.without_time == "drop":
        frame = frame.where(stamp.isNotNull() & (stamp != NO_TIMESTAMP))
    if options.outside == "drop":
        inside = (stamp >= limits.oldest_ms) & (stamp <= limits.newest_ms)
        frame = frame.where(stamp.isNull() | (stamp == NO_TIMESTAMP) | inside)
    return frame


def stage(frame: Any, directory: Path, partition_count: int) -> None:
    """Writes the rows, each partition in the order of its times."""
    ordered = frame.repartition(partition_count, "partition").sortWithinPartitions(
        "partition", "timestamp_ms", "key", "value", "headers"
    )
    writer = ordered.write.option("maxRecordsPerFile", _ROWS_PER_FILE).partitionBy("partition")
    writer.parquet(str(directory.resolve()), compression="zstd")


def place_of(partition: int) -> str:
    """Returns the name of the directory with the rows of a partition."""
    return f"{_PARTITION}{partition}"


def staged_files(directory: Path) -> dict[int, tuple[str, ...]]:
    """Returns the files of each partition, in their order."""
    found: dict[int, tuple[str, ...]] = {}
    for place in sorted(directory.glob(f"{_PARTITION}*")):
        number = int(urllib.parse.unquote(place.name[len(_PARTITION) :]))
        found[number] = tuple(sorted(str(path.resolve()) for path in place.glob("*.parquet")))
    return dict(sorted(found.items()))


def row_count(files: tuple[str, ...]) -> int:
    """Returns the number of rows in these files."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in files)
