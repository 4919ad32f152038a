"""The Spark part of backfill: makes records of rows, counts them, and stages them as sorted Parquet.

The JVM makes JSON (`to_json`) and headers. Python parses times, assigns keys to partitions, encodes Avro
and counts, a batch at a time (`rows`). The order is total (time, key, value, headers), so a partition
that is staged twice has the same contents.
"""

from __future__ import annotations

import functools
import json
import urllib.parse
import warnings
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.arrival import arrive, home
from tidelog.pipeline.backfill import avro, rows
from tidelog.pipeline.backfill.rows import LOCAL, Counts, Limits, Staging
from tidelog.pipeline.backfill.wanted import check_partitions, unit_of_times, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from tidelog.pipeline.backfill.wanted import ColumnNames
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


class RowsOnSpark:
    """The rows of a table, which Spark reads once to count them and once to stage them."""

    def __init__(self, table: Any, options: BackfillOptions, partition_count: int) -> None:
        """Raises UsageError for what the options cannot mean."""
        self._table, self._options = table, options
        names, kinds = wanted(options, table.columns), dict(table.dtypes)
        unit = unit_of_times(options, kinds)
        # Without a registered schema Avro values are made as by schema 0, to be counted alone.
        schema = (avro.schema_of(table, options), 0) if options.format == AVRO else None
        self._how = Staging(unit, options.time_zone, partition_count, options.time_column, schema)
        self._frame = _columns(table, options, names, kinds, unit)

    def count(self, limits: Limits) -> Counts:
        """Counts the rows. Raises the errors of Spark."""
        found = self._made("counts", limits, "counts string").collect()
        parts = (Counts(*json.loads(row["counts"])) for row in found)
        return functools.reduce(Counts.plus, parts, Counts())

    def stage(self, directory: Path, limits: Limits) -> None:
        """Writes the rows that are not left out, each partition in order."""
        if self._options.format == AVRO:  # registered only now, when nothing is refused
            text, number = avro.registered(self._table, self._options)
            self._how = self._how._replace(schema=(text, number))
        ordered = (
            self._made("rows", limits, _STAGED)
            .repartition(self._how.partition_count, "partition")
            .sortWithinPartitions("partition", "timestamp_ms", "key", "value", "headers")
        )
        writer = ordered.write.option("maxRecordsPerFile", _ROWS_PER_FILE).partitionBy("partition")
        writer.parquet(str(directory.resolve()), compression="zstd")

    def _made(self, what: str, limits: Limits, schema: str) -> Any:
        """Returns what the workers make of the rows."""
        # Of types that a worker knows before our packages are found there.
        given = (what, tuple(self._how), tuple(limits), drops(self._options))
        with warnings.catch_warnings():  # PySpark warns about a new pandas, which is not used here
            warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
            return self._frame.mapInArrow(_made_of_batches(tuple(home()), given), schema)


def _columns(
    table: Any, options: BackfillOptions, names: ColumnNames, kinds: Mapping[str, str], unit: str
) -> Any:
    """Returns the columns that `rows.staged` needs."""
    from pyspark.sql import functions as sql

    file, row = _place(sql, table)
    return table.select(
        _time(sql, options.time_column, kinds, unit).alias("time"),
        _text(sql, options.key_column, table).alias("key"),
        _value(sql, options, names.values).alias("value"),
        _headers(sql, names.headers, table).alias("headers"),
        _partition(sql, options.partition_column, kinds).alias("partition"),
        file.alias("file"),
        row.alias("row"),
    )


def _made_of_batches(
    place: tuple[str, ...], given: tuple[Any, ...]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for mapInArrow, nested to be pickled by value (see `tidelog.pipeline.tasks`)."""

    def made(batches: Iterator[Any]) -> Iterator[Any]:
        arrive(*place)
        from tidelog.pipeline.backfill import staging

        yield from staging.made(batches, *given)

    made.__module__ = "__main__"
    return made


def made(
    batches: Iterable[pa.RecordBatch],
    what: str,
    how: tuple[Any, ...],
    limits: tuple[int, ...],
    left_out: Mapping[str, bool],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that are staged, or their counts as JSON, in a worker."""
    import pyarrow as pa

    count = Counts()
    for batch in batches:
        found = rows.staged(batch, Staging(*how))
        if what == "rows":
            yield rows.kept(found, Limits(*limits), **left_out)
        else:
            count = count.plus(rows.counted(found, Staging(*how).partition_count, Limits(*limits)))
    if what == "counts":
        yield pa.record_batch({"counts": [json.dumps(count)]})


def drops(options: BackfillOptions) -> dict[str, bool]:
    """Returns which rows are left out, for `rows.kept`."""
    return {
        "drops_timeless": options.without_time == "drop",
        "drops_outside": options.outside == "drop",
    }


def _time(sql: Any, name: str, kinds: Mapping[str, str], unit: str) -> Any:
    """Returns the time column for the engine, which knows times in this unit."""
    column = _column(sql, name)
    if kinds[name] == "timestamp":
        return sql.unix_micros(column)
    if unit == LOCAL:
        return column.cast("timestamp_ntz")
    # Texts are read in Python, which says where one is that is not a number.
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
