"""Reads CSV and JSON with Spark so that broken lines are a class of their own, and change no other row.

Broken are a line that is no JSON, a line with more behind its first JSON value, which Spark ignores, and a
line of CSV with more or fewer fields than the first. They do not take part when the types of the columns are
inferred. A program that chooses Spark's `mode` or `columnNameOfCorruptRecord` itself gets what Spark does,
and so does one whose JSON has values of several lines (`multiLine`).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.backfill.places import path_of, shown
from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.source import locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_CORRUPT: Final = "__tidelog_malformed"
_CHOSEN: Final = frozenset({"mode", "columnnameofcorruptrecord"})
_MULTILINE: Final = "multiline"
_MAYBE_MORE: Final = r"[^}\s]\s*$|\}\s*,?\s*\{"
"""Lines that a value of JSON may not end; Python then looks at them, since this may be within a text."""
_NAMED: Final = 3


class Malformed(NamedTuple):
    """How many lines of a table are broken, and where the first of them are."""

    lines: int = 0
    where: Sequence[str] = ()


NONE: Final = Malformed()
_HEADER_BYTES: Final = 64 << 10


def read(spark: Any, kind: str, place: str, given: Mapping[str, str]) -> tuple[Any, Malformed]:
    """Returns the rows of the lines that are not broken, and what is known of the others.

    `kind` is csv or json. Raises the errors of Spark, and UsageError for lines that cannot be left out.
    """
    from pyspark.sql import functions as sql

    reader = spark.read.options(**given)
    names = {name.lower(): name for name in given}
    if not _CHOSEN.isdisjoint(names):
        return reader.format(kind).load(place), NONE
    # Broken lines of JSON would be a column of their own in the schema.
    inferring = reader.option("mode", "DROPMALFORMED") if kind == "json" else reader
    frame = inferring.format(kind).load(place)
    schema = frame.schema
    if kind == "csv" and _is_true(given, names, "header"):
        separator = separator_of({low: given[name] for low, name in names.items()})
        _check_headers(frame.inputFiles(), separator)
    if not schema.fields:  # Spark cannot look for broken lines alone
        return spark.read.options(**given).format(kind).load(place), NONE
    marked = _marked(spark, kind, given, schema).load(place)
    broken = _broken(marked, schema.fields[0].name)
    has_more = None
    if kind == "json" and not _is_true(given, names, _MULTILINE):
        has_more = _with_more(spark, place, given)
        broken = broken.unionAll(has_more)
    # Spark reads broken lines alone only where they are kept.
    broken = broken.persist()
    try:
        found = _counted(broken)
        if not found.lines:
            return spark.read.options(**given).format(kind).schema(schema).load(place), NONE
        if has_more is not None and not has_more.isEmpty():
            if len(spark.read.text(place).columns) > 1:  # columns that rows of lines would lack
                raise UsageError(
                    f"lines of {place} have more than one JSON value, and its directories name columns: end"
                    f" each value with a line ({found.where[0]})"
                )
            lines = _lines(spark, place, given).join(has_more, "line", "left_anti")
            good = lines.rdd.map(lambda row: row[0])
            schema = inferring.json(good).schema
            marked = _marked(spark, kind, given, schema).json(good)
            return _unbroken(marked), found
        if kind == "csv" and _is_true(given, names, "inferschema"):
            lines = spark.read.text(place).join(broken, sql.expr("value = line"), "left_anti")
            good = lines.rdd.map(lambda row: row[0])
            schema = spark.read.options(**given).csv(good).schema
    finally:
        broken.unpersist()
    return _unbroken(_marked(spark, kind, given, schema).load(place)), found


def separator_of(given: Mapping[str, str]) -> str:
    """Returns what separates the columns of CSV, by options whose names are in small letters."""
    return given.get("sep", given.get("delimiter", ",")).replace(r"\t", "\t")


def _check_headers(files: Sequence[str], separator: str) -> None:
    """Raises UsageError if files have other columns than the first, or in another order.

    Spark goes by position then, and swaps their values. Files without a line have no columns.
    """
    if len(files) < 2:
        return

    def columns(header: str) -> list[str]:
        if len(separator) != 1:
            return header.split(separator)
        return next(csv.reader([header], delimiter=separator))

    headers = {file: header for file in sorted(files) if (header := _header(file))}
    first, expected = next(iter(headers.items()), ("", ""))
    for file, found in headers.items():
        if columns(found) != columns(expected):
            raise UsageError(
                f"{path_of(file)} has the columns {shown(found)}, and {path_of(first)}"
                f" {shown(expected)}: the files of a table have the same columns in the same order"
            )


def _header(file: str) -> str:
    """Returns the first line of a file, decompressed by its ending."""
    system, path = locations.system_of(file)
    with system.open_input_stream(path) as stream:
        line: bytes = stream.read(_HEADER_BYTES).split(b"\n", 1)[0]
    return line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r").decode(errors="replace")


def _is_true(given: Mapping[str, str], names: Mapping[str, str], name: str) -> bool:
    return given.get(names.get(name, ""), "").lower() == "true"


def _lines(spark: Any, place: str, given: Mapping[str, str]) -> Any:
    """Returns all lines of a table of text, and their files."""
    lines = spark.read.options(**given).format("text").load(place)
    return lines.selectExpr("value as line", "_metadata.file_path as file")


def _with_more(spark: Any, place: str, given: Mapping[str, str]) -> Any:
    """Returns the lines with more behind their first value of JSON, as `_broken` does."""
    from pyspark.sql import functions as sql

    maybe = _lines(spark, place, given).where(sql.col("line").rlike(_MAYBE_MORE))
    maybe = maybe.withColumn("other", sql.lit(True))
    return maybe.mapInArrow(_keeping_more(), maybe.schema)


def _keeping_more() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for mapInArrow, nested to be pickled by value."""

    def kept(batches: Iterator[Any]) -> Iterator[Any]:
        import json

        import pyarrow as pa

        decode = json.JSONDecoder().raw_decode

        def has_more(line: str) -> bool:
            text = line.strip().removeprefix("\ufeff")
            try:
                return decode(text)[1] < len(text)
            except (ValueError, RecursionError):
                return False  # Spark decides whether it is JSON

        for batch in batches:
            lines = batch.column("line").to_pylist()
            yield batch.filter(pa.array(map(has_more, lines), pa.bool_()))

    return kept


def _unbroken(marked: Any) -> Any:
    return marked.where(f"`{_CORRUPT}` is null").drop(_CORRUPT)


def _marked(spark: Any, kind: str, given: Mapping[str, str], schema: Any) -> Any:
    """Returns a reader of all lines, with the text of those that are broken in a column of its own."""
    from pyspark.sql.types import StringType, StructField, StructType

    marked = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    reader = spark.read.options(**given).option("mode", "PERMISSIVE")
    reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
    if kind == "csv":  # Spark does not count fields if it reads only some columns
        reader = reader.option("columnPruning", "false")
    return reader.format(kind).schema(marked)


def _broken(marked: Any, first: str) -> Any:
    """Returns the broken lines and their files; Spark wants one of the other columns with them."""
    quoted = "`" + first.replace("`", "``") + "`"
    return marked.where(f"`{_CORRUPT}` is not null").selectExpr(
        f"`{_CORRUPT}` as line", "_metadata.file_path as file", f"{quoted} is null as other"
    )


def _counted(broken: Any) -> Malformed:
    count = broken.count()
    if not count:
        return NONE
    found = broken.orderBy("file").limit(_NAMED).collect()
    seen: set[tuple[str, int]] = set()
    return Malformed(count, [_place(one["file"], one["line"], seen) for one in found])


def _place(file: str, line: str, seen: set[tuple[str, int]]) -> str:
    """Returns the place of a broken line and its beginning; without a number if it is not found."""
    path, wanted = path_of(file), line.strip()
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as text:
            for number, one in enumerate(text, 1):
                if one.strip() == wanted and (path, number) not in seen:
                    seen.add((path, number))
                    return f"line {number} of {path}: {shown(line)}"
    except OSError:
        pass
    return f"{path}: {shown(line)}"
