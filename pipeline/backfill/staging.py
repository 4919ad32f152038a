"""The Spark part of backfill: makes records of rows, counts them, and stages them as sorted Parquet.

The JVM makes JSON (`to_json`) and headers. Python parses times, assigns keys to partitions and encodes
Avro, a batch at a time. The order is total (time, key, value, headers), so a partition that is staged
twice has the same contents.
"""

from __future__ import annotations

import urllib.parse
import warnings
from typing import TYPE_CHECKING, Any, Final

from pipeline.arrival import arrive, home
from pipeline.backfill import avro
from pipeline.backfill.rows import LOCAL, Staging
from pipeline.errors import UsageError
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pipeline.backfill.avro import Schema

AVRO: Final = "avro"
_PARTITION: Final = "partition="
_LARGEST_INT: Final = 2**31 - 1
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


def rows(
    table: Any, options: argparse.Namespace, partition_count: int, schema: Schema | None = None
) -> Any:
    """Returns the rows to stage, not yet in order. Raises UsageError for a missing column.

    `schema` is that of Avro values; without one they are made as by schema 0, to be counted alone.
    """
    from pyspark.sql import functions as sql

    values = options.value_columns.split(",") if options.value_columns else table.columns
    headers = options.header_columns.split(",") if options.header_columns else []
    single = (options.time_column, options.key_column, options.partition_column)
    for name in (*filter(None, single), *values, *headers):
        if name not in table.columns:
            raise UsageError(
                f"the table has no column {name}; it has {', '.join(table.columns[:30])}"
            )
    stamp, unit = _time(sql, table, options)
    frame = table.select(
        stamp.alias("time"),
        _text(sql, options.key_column, table).alias("key"),
        _value(sql, options, values).alias("value"),
        _headers(sql, headers, table).alias("headers"),
        _partition(sql, options.partition_column, table).alias("partition"),
    )
    if options.format == AVRO and schema is None:
        schema = avro.Schema(avro.schema_of(table, options), 0)
    how = Staging(unit, options.time_zone, partition_count, schema)
    with warnings.catch_warnings():  # PySpark warns about a new pandas, which is not used here
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        return frame.mapInArrow(_stager(how), _STAGED)


def _time(sql: Any, table: Any, options: argparse.Namespace) -> tuple[Any, str]:
    """Returns the time column for the engine, and its unit. Raises UsageError."""
    name, unit = options.time_column, options.time_unit
    kind = dict(table.dtypes)[name]
    column = _column(sql, name)
    if kind in {"timestamp", "timestamp_ntz", "date"}:
        if unit is not None:
            raise UsageError(f"column {name} is a {kind}: it needs no --time-unit")
        if kind == "timestamp":
            return sql.unix_micros(column), "us"
        if options.time_zone is None:
            raise UsageError(
                f"column {name} is a {kind}, a time without a zone: say --time-zone UTC, or that in"
                " which it was written (Europe/Brussels)"
            )
        return column.cast("timestamp_ntz"), LOCAL
    if unit is None:
        raise UsageError(f"column {name} is {kind}: say its --time-unit")
    if unit == "iso":
        return column.cast("string"), unit
    if kind in {"double", "float"} or kind.startswith("decimal"):
        raise UsageError(
            f"column {name} is {kind}, which is no whole number of {unit}: cast it first"
        )
    return column.cast("bigint"), unit


def _column(sql: Any, name: str) -> Any:
    return sql.col("`" + name.replace("`", "``") + "`")


def _text(sql: Any, name: str | None, table: Any) -> Any:
    """Returns a column as bytes: its text, or what it is if it is bytes."""
    if name is None:
        return sql.lit(None).cast("binary")
    if dict(table.dtypes)[name] == "binary":
        return _column(sql, name)
    return _column(sql, name).cast("string").cast("binary")


def _headers(sql: Any, names: list[str], table: Any) -> Any:
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


def _partition(sql: Any, name: str | None, table: Any) -> Any:
    if name is None:
        return sql.lit(None).cast("int")
    kind = dict(table.dtypes)[name]
    if kind not in {"tinyint", "smallint", "int", "bigint"}:
        raise UsageError(
            f"column {name} is {kind}, which is no number of a partition: cast it first"
        )
    column = _column(sql, name)
    # A larger number is in no topic either. Without ANSI mode Spark would cut it off to another one.
    fits = column.between(0, _LARGEST_INT)
    return sql.when(fits, column.cast("int")).when(column.isNotNull(), sql.lit(-1))


def _value(sql: Any, options: argparse.Namespace, names: list[str]) -> Any:
    if options.format == "raw":
        return _column(sql, names[0]).cast("binary")
    columns = sql.struct(*(_column(sql, name) for name in names))
    return columns if options.format == AVRO else sql.to_json(columns, _JSON).cast("binary")


def _stager(how: Staging) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for mapInArrow, nested to be pickled by value (see `pipeline.tasks`)."""
    place = tuple(home())
    unit, zone, partition_count, schema = how
    fields = (unit, zone, partition_count, schema and tuple(schema))  # of types a worker knows

    def stage_batches(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib

        arrive(*place)
        engine = importlib.import_module(f"{place[0]}.backfill.rows")
        for batch in batches:
            yield engine.staged(batch, engine.Staging(*fields))

    stage_batches.__module__ = "__main__"
    return stage_batches


def count(
    frame: Any, partition_count: int, oldest_ms: int, newest_ms: int, kept_ms: int
) -> tuple[Any, ...]:
    """Counts rows.

    Returns all, those without a time, in no partition of the topic, too old, too new, past retention,
    and the first and the last time.
    """
    from pyspark.sql import functions as sql

    stamp = sql.col("timestamp_ms")
    has_time = stamp.isNotNull() & (stamp != NO_TIMESTAMP)

    def those(condition: Any) -> Any:
        return sql.count_if(sql.coalesce(condition, sql.lit(False)))

    row = frame.agg(
        sql.count(sql.lit(1)),
        those(stamp.isNull() | (stamp == NO_TIMESTAMP)),
        those((sql.col("partition") < 0) | (sql.col("partition") >= partition_count)),
        those(has_time & (stamp < oldest_ms)),
        those(has_time & (stamp > newest_ms)),
        those(has_time & (stamp < kept_ms)),
        sql.min(stamp),
        sql.max(stamp),
    ).first()
    return tuple(row)


def kept(
    frame: Any, options: argparse.Namespace, oldest_ms: int, newest_ms: int, _kept_ms: int
) -> Any:
    """Returns the rows without those that are to be left out."""
    from pyspark.sql import functions as sql

    stamp = sql.col("timestamp_ms")
    if options.without_time == "drop":
        frame = frame.where(stamp.isNotNull() & (stamp != NO_TIMESTAMP))
    if options.outside == "drop":
        inside = (stamp >= oldest_ms) & (stamp <= newest_ms)
        frame = frame.where(stamp.isNull() | (stamp == NO_TIMESTAMP) | inside)
    return frame


def stage(frame: Any, directory: Path, partition_count: int) -> None:
    """Writes the rows, each partition in the order of its times."""
    ordered = frame.repartition(partition_count, "partition").sortWithinPartitions(
        "partition", "timestamp_ms", "key", "value", "headers"
    )
    writer = ordered.write.option("maxRecordsPerFile", _ROWS_PER_FILE).partitionBy("partition")
    writer.parquet(str(directory.resolve()), compression="zstd")


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
