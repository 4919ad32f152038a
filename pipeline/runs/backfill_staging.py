"""The Spark part of backfill: reads the table, counts it, and stages it in order as Parquet.

The JVM makes the values (`to_json`). Python parses times and assigns keys to partitions, a batch at
a time. The order is total (time, key, value), so a partition that is staged twice has the same
contents.
"""

from __future__ import annotations

import urllib.parse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.arrival import arrive, home
from pipeline.errors import UsageError
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pipeline.session import Session

_PARTITION: Final = "partition="
_ENDINGS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".orc": "orc",
}
_ROWS_PER_FILE: Final = 5_000_000


def rows(session: Session, options: argparse.Namespace, partition_count: int) -> Any:
    """Returns the rows to stage, not yet in order. Raises UsageError for a missing column."""
    from pyspark.sql import functions as sql

    table = _table(session, options)
    named = [options.time_column, *([options.key_column] if options.key_column else [])]
    values = options.value_columns.split(",") if options.value_columns else table.columns
    for name in (*named, *values):
        if name not in table.columns:
            raise UsageError(
                f"the table has no column {name}; it has {', '.join(table.columns[:30])}"
            )
    kind = dict(table.dtypes)[options.time_column]
    stamp = sql.col(f"`{options.time_column}`")
    unit = options.time_unit
    if kind in {"timestamp", "timestamp_ntz", "date"}:
        if unit is not None:
            raise UsageError(f"column {options.time_column} is a {kind}: it needs no --time-unit")
        stamp, unit = sql.unix_millis(stamp.cast("timestamp")), "ms"
    elif unit is None:
        raise UsageError(f"column {options.time_column} is {kind}: say its --time-unit")
    elif unit == "iso":
        stamp = stamp.cast("string")
    elif kind in {"double", "float"} or kind.startswith("decimal"):
        raise UsageError(
            f"column {options.time_column} is {kind}, which is no whole number of {unit}: cast it first"
        )
    else:
        stamp = stamp.cast("bigint")
    frame = table.select(
        stamp.alias("time"),
        _key(sql, options.key_column, table).alias("key"),
        _value(sql, options, values).alias("value"),
    )
    schema = "partition int, timestamp_ms bigint, key binary, value binary"
    with warnings.catch_warnings():  # PySpark warns about a new pandas, which is not used here
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        return frame.mapInArrow(_stager(unit, partition_count), schema)


def _table(session: Session, options: argparse.Namespace) -> Any:
    kind = options.input or _ENDINGS.get(Path(options.table.rstrip("/")).suffix.lower())
    if kind is None:
        raise UsageError(f"what is {options.table}? say --input parquet, csv, json, orc or table")
    if kind == "table":
        return session.spark.table(options.table)
    reader = session.spark.read.format(kind)
    for key, value in options.option:
        reader = reader.option(key, value)
    return reader.load(options.table)


def _key(sql: Any, name: str | None, table: Any) -> Any:
    if name is None:
        return sql.lit(None).cast("binary")
    column = sql.col(f"`{name}`")
    if dict(table.dtypes)[name] == "binary":
        return column
    return column.cast("string").cast("binary")


def _value(sql: Any, options: argparse.Namespace, names: list[str]) -> Any:
    if options.format == "raw":
        return sql.col(f"`{names[0]}`").cast("binary")
    columns = sql.struct(*(sql.col(f"`{name}`") for name in names))
    return sql.to_json(columns, {"ignoreNullFields": "false"}).cast("binary")


def _stager(unit: str, partition_count: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for mapInArrow, nested to be pickled by value (see `pipeline.tasks`)."""
    place = tuple(home())

    def stage_batches(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib

        arrive(*place)
        staged = importlib.import_module(f"{place[0]}.engine.backfill").staged
        for batch in batches:
            yield staged(batch, unit, partition_count)

    stage_batches.__module__ = "__main__"
    return stage_batches


def count(frame: Any, oldest_ms: int, newest_ms: int, kept_ms: int) -> tuple[Any, ...]:
    """Counts rows: all, without a time, too old, too new, past retention; first and last time."""
    from pyspark.sql import functions as sql

    stamp = sql.col("timestamp_ms")
    has_time = stamp.isNotNull() & (stamp != NO_TIMESTAMP)

    def those(condition: Any) -> Any:
        return sql.count_if(sql.coalesce(condition, sql.lit(False)))

    row = frame.agg(
        sql.count(sql.lit(1)),
        those(stamp.isNull() | (stamp == NO_TIMESTAMP)),
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
        "partition", "timestamp_ms", "key", "value"
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
