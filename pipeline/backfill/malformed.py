"""Reads CSV and JSON with Spark so that broken lines are a class of their own, and change no other row.

Broken are a line that is no JSON, and a line of CSV with more or fewer fields than the first. They do not
take part when the types of the columns are inferred. A program that chooses Spark's `mode` or
`columnNameOfCorruptRecord` itself gets what Spark does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.backfill.places import path_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CORRUPT: Final = "__tidelog_malformed"
_CHOSEN: Final = frozenset({"mode", "columnnameofcorruptrecord"})
_NAMED: Final = 3


class Malformed(NamedTuple):
    """How many lines of a table are broken, and where the first of them are."""

    lines: int = 0
    where: Sequence[str] = ()


NONE: Final = Malformed()


def read(spark: Any, kind: str, place: str, given: Mapping[str, str]) -> tuple[Any, Malformed]:
    """Returns the rows of the lines that are not broken, and what is known of the others.

    `kind` is csv or json. Raises the errors of Spark.
    """
    from pyspark.sql import functions as sql

    reader = spark.read.options(**given)
    names = {name.lower(): name for name in given}
    if not _CHOSEN.isdisjoint(names):
        return reader.format(kind).load(place), NONE
    # Broken lines of JSON would be a column of their own in the schema.
    inferring = reader.option("mode", "DROPMALFORMED") if kind == "json" else reader
    schema = inferring.format(kind).load(place).schema
    if not schema.fields:  # Spark cannot look for broken lines alone
        return spark.read.options(**given).format(kind).load(place), NONE
    marked = _marked(spark, kind, place, given, schema)
    # Spark reads broken lines alone only where they are kept.
    broken = _broken(marked, schema.fields[0].name).persist()
    try:
        found = _counted(broken)
        if not found.lines:
            return spark.read.options(**given).format(kind).schema(schema).load(place), NONE
        if kind == "csv" and given.get(names.get("inferschema", ""), "").lower() == "true":
            lines = spark.read.text(place).join(broken, sql.expr("value = line"), "left_anti")
            good = lines.rdd.map(lambda row: row[0])
            schema = spark.read.options(**given).csv(good).schema
    finally:
        broken.unpersist()
    marked = _marked(spark, kind, place, given, schema)
    return marked.where(f"`{_CORRUPT}` is null").drop(_CORRUPT), found


def _marked(spark: Any, kind: str, place: str, given: Mapping[str, str], schema: Any) -> Any:
    """Returns all lines, with the text of those that are broken in a column of its own."""
    from pyspark.sql.types import StringType, StructField, StructType

    marked = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    reader = spark.read.options(**given).option("mode", "PERMISSIVE")
    reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
    if kind == "csv":  # Spark does not count fields if it reads only some columns
        reader = reader.option("columnPruning", "false")
    return reader.format(kind).schema(marked).load(place)


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
