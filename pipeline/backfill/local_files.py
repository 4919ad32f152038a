"""Reads small local files without Spark, where they mean to Arrow and Python what they mean to Spark.

Whatever else Spark may make of a file raises NeedsSpark: it reads what it reads, and nothing is guessed.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.backfill.malformed import separator_of
from tidelog.pipeline.backfill.places import shown
from tidelog.pipeline.backfill.rows import floor_divided
from tidelog.pipeline.backfill.tables import format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.pipeline.jobs.backfill import BackfillOptions

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
"""The types that are known here outside lists and structs, by Spark's names."""
_URI: Final = re.compile(r"[*?\[\]{}\\%]|^[A-Za-z][A-Za-z0-9+.-]*:")
_HIDDEN: Final = ("_", ".")
_PACKED: Final = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz")
_CONFIGURED: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


class NeedsSpark(Exception):
    """Spark has to do this backfill; the message is the clause that follows `because`."""


class Read(NamedTuple):
    """The columns that were chosen, all of Spark's types, and how many rows each file has."""

    names: Sequence[str]  # of all columns
    table: pa.Table
    files: Sequence[tuple[Path, int]]


def read(
    options: BackfillOptions,
    choose: Callable[[Sequence[str]], Sequence[str]],
    limit_bytes: float,
) -> Read:
    """Reads the table of a backfill. Raises NeedsSpark, and what `choose` raises.

    `choose` returns the names of the needed columns. `limit_bytes` is the most that files, and rows of
    Parquet in memory, may have.
    """
    kind = format_of(options)
    if kind not in {"csv", "json", "parquet"}:
        raise NeedsSpark(f"the table is {kind}")
    paths = _local_files(options.table)
    if sum(path.stat().st_size for path in paths) > limit_bytes:
        raise NeedsSpark(f"the table has more than {limit_bytes / 2**20:.0f} MB")

    def chosen(names: Sequence[str]) -> list[str]:
        if "" in names or len({name.lower() for name in names}) < len(names):
            raise NeedsSpark("names of columns are empty or differ in case alone")
        return list(choose(names))

    given = {name.lower(): value for name, value in options.option}
    unknown = given.keys() - (
        {"header", "inferschema", "sep", "delimiter"} if kind == "csv" else set()
    )
    if unknown:
        raise NeedsSpark(f"--option {min(unknown)} is given")
    if kind == "csv":
        return _csv(paths, given, chosen)
    return _json(paths, chosen) if kind == "json" else _parquet(paths, chosen, limit_bytes)


def _local_files(table: str) -> list[Path]:
    """Returns the file, or the files of the directory, in the order of their names."""
    for name in _CONFIGURED:
        if os.environ.get(name):
            raise NeedsSpark(f"{name} may say what a path means")
    if _URI.search(table):
        raise NeedsSpark(f"{table} is a pattern or a URI")
    path = Path(table)
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    found = [one for one in found if not one.name.startswith(_HIDDEN) or one == path]
    for one in found:
        if not one.is_file():
            raise NeedsSpark(f"{one} is a directory" if one.exists() else f"{one} does not exist")
        if one.name.startswith(_HIDDEN) or one.suffix in _PACKED:
            raise NeedsSpark(f"{one} is hidden or packed")
    if not found:
        raise NeedsSpark(f"{table} is empty")
    return found


# --- CSV ------------------------------------------------------------------------------------------

_END: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = "".join(map(chr, range(0x21)))
"""What Java trims."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
# The form that all values of a column have, and its type.
_FORMS: Final = (
    (re.compile(r"-?[0-9]{1,18}"), pa.int64()),
    (re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?"), pa.float64()),
    (re.compile(r"true|false"), pa.bool_()),
    (re.compile(_DAY), pa.date32()),
    (re.compile(rf"{_DAY}T{_CLOCK}Z"), TIMESTAMP),
    (re.compile(rf"{_DAY}[T ]{_CLOCK}"), TIMESTAMP_NTZ),
)
_WORD: Final = re.compile(r"[A-SU-Za-su-z]")  # Spark reads T12:00 as a time
_NO_WORDS: Final = re.compile(
    r"true|false|nan|inf|infinity|now|today|tomorrow|yesterday|epoch", re.IGNORECASE
)


def _lines(path: Path) -> dict[int, str]:
    """Returns the lines of a file that are not blank, by their numbers, as Spark cuts it."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise NeedsSpark(f"{path} is not UTF-8") from None
    if _CONTROL.search(text) or text.startswith("\ufeff"):
        raise NeedsSpark(f"{path} contains control characters or a byte order mark")
    return {n: line for n, line in enumerate(_END.split(text), 1) if line.strip(_BLANK)}


def _named(path: Path, number: int, line: str) -> str:
    return f"line {number} of {path} ({shown(line)})"


def _csv(
    paths: Sequence[Path],
    given: Mapping[str, str],
    choose: Callable[[Sequence[str]], Sequence[str]],
) -> Read:
    """Reads CSV in which quotes surround whole fields: Spark knows no doubled quotes."""
    separator = separator_of(given)
    if separator not in {",", ";", "|", "\t"} or {"sep", "delimiter"} <= given.keys():
        raise NeedsSpark("its separator is unusual")
    has_header, is_inferred = (_is_set(given, name) for name in ("header", "inferschema"))
    field = rf'(?:"[^"\\]*"|[^"\\{separator}]*)'
    plain = re.compile(f"{field}(?:[{separator}]{field})*")
    names: Sequence[str] | None = None
    rows: list[list[str | None]] = []
    files: list[tuple[Path, int]] = []
    for path in paths:
        lines = _lines(path)
        for number, line in lines.items():
            if '"' in line and not plain.fullmatch(line):
                said = _named(path, number, line)
                raise NeedsSpark(f"{said} has quotes or backslashes within fields")
        try:
            found = list(csv.reader(lines.values(), delimiter=separator, doublequote=False))
        except csv.Error as error:
            raise NeedsSpark(f"{path} has unusual fields ({error})") from None
        if not found:
            raise NeedsSpark(f"{path} is empty")
        titles = found[0] if has_header else [f"_c{n}" for n in range(len(found[0]))]
        if names not in (None, titles):
            raise NeedsSpark(f"{path} has other columns than {paths[0]}")
        names = titles
        body = found[int(has_header) :]
        for (number, line), row in zip(lines.items(), found, strict=True):
            if len(row) != len(names):
                raise NeedsSpark(
                    f"{_named(path, number, line)} has fewer or more fields than the first"
                )
        rows += [[one or None for one in row] for row in body]
        files.append((path, len(body)))
    assert names is not None
    columns: dict[str, pa.Array] = {}
    for name in choose(names):
        number = names.index(name)
        texts = [row[number] for row in rows]
        columns[name] = _inferred(name, texts) if is_inferred else pa.array(texts, pa.string())
    return Read(names, pa.table(columns), files)


def _is_set(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in {"true", "false"}:
        raise NeedsSpark(f"--option {name} is {value}")
    return value == "true"


def _inferred(name: str, texts: Sequence[str | None]) -> pa.Array:
    """Returns a column with the type that Spark infers."""
    values = {one for one in texts if one is not None}
    column = pa.array(texts, pa.string())
    if not values or any(_WORD.match(one) and not _NO_WORDS.fullmatch(one) for one in values):
        return column
    for form, kind in _FORMS:
        if all(map(form.fullmatch, values)):
            try:
                found = column.cast(kind)
            except pa.ArrowInvalid:
                break
            is_narrow = kind == pa.int64() and all(-(2**31) <= int(one) < 2**31 for one in values)
            return found.cast(pa.int32()) if is_narrow else found
    raise NeedsSpark(f"what column {name} contains may be read in several ways")


# --- JSON -----------------------------------------------------------------------------------------


def _json(paths: Sequence[Path], choose: Callable[[Sequence[str]], Sequence[str]]) -> Read:
    """Reads JSON lines: whole numbers are bigint, a column of nulls is text, fields are in order."""
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    rows, files = [], []
    for path in paths:
        lines = _lines(path)
        for number, line in lines.items():
            try:
                rows.append(decode(line))
            except (ValueError, RecursionError):
                raise NeedsSpark(f"{_named(path, number, line)} is no plain JSON") from None
        files.append((path, len(lines)))
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise NeedsSpark("the table has no rows, or lines that are no objects")
    try:
        kind = _finished(pa.infer_type(rows))
        names = [field.name for field in kind]
        wanted = choose(names)
        if "_corrupt_record" in names or _is_mixed(rows):
            raise NeedsSpark("a column is named _corrupt_record, or has numbers and true or false")
        columns = {
            name: pa.array([row.get(name) for row in rows], kind.field(name).type)
            for name in wanted
        }
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise NeedsSpark(f"values do not fit one type ({error})") from None
    return Read(names, pa.table(columns), files)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if not pairs or len({name.lower() for name, _ in pairs}) < len(pairs):
        raise NeedsSpark("an object has no fields, or two of one name")
    return dict(pairs)


def _is_mixed(values: Sequence[Any]) -> bool:
    """Returns whether booleans are among numbers, at any depth: Arrow would make them numbers."""
    if {bool, float} <= set(map(type, values)):
        return True
    objects = [one for one in values if isinstance(one, dict)]
    lists = [one for one in values if isinstance(one, list)]
    fields = {name for one in objects for name in one}
    return any(_is_mixed([one.get(name) for one in objects]) for name in fields) or (
        bool(lists) and _is_mixed(list(itertools.chain(*lists)))
    )


def _finished(kind: pa.DataType) -> pa.DataType:
    """Returns a type with fields in the order of their names, and text for what is always null."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_finished(kind.value_type))
    if not pa.types.is_struct(kind):
        return kind
    if len({field.name.lower() for field in kind}) < kind.num_fields:
        raise NeedsSpark("names of fields differ in case alone")
    # The order of Java: that of the units of UTF-16.
    ordered = sorted(kind, key=lambda field: field.name.encode("utf-16-be"))
    return pa.struct([(field.name, _finished(field.type)) for field in ordered])


# --- Parquet --------------------------------------------------------------------------------------

_SPARKS_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_SPARKS_VERSION: Final = b"org.apache.spark.version"
_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARKS_TYPE: Final = re.compile(rb'"(?:type|elementType)":\s*"([a-z_]+)')
_SPARKS_TYPES: Final = frozenset(
    b"struct array boolean byte short integer long double string binary date timestamp timestamp_ntz".split()
)
_LOGICAL: Final = frozenset({"NONE", "STRING", "INT", "DATE", "TIMESTAMP"})


def _parquet(
    paths: Sequence[Path],
    choose: Callable[[Sequence[str]], Sequence[str]],
    left_bytes: float,
) -> Read:
    """Reads Parquet; `left_bytes` is for its rows in memory: a small file can hold many."""
    names: Sequence[str] | None = None
    files, batches = [], []
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                if names not in (None, file.schema_arrow.names):
                    raise NeedsSpark(f"{path} has other columns than {paths[0]}")
                names = file.schema_arrow.names
                wanted = choose(names)
                _check(file, path, wanted)
                kinds = [file.schema_arrow.field(name).type for name in wanted]
                batches.append(pa.record_batch([pa.array([], kind) for kind in kinds], wanted))
                for batch in file.iter_batches(8192, columns=wanted):
                    batches.append(batch.select(wanted))
                    left_bytes -= batch.nbytes
                    if left_bytes < 0:
                        raise NeedsSpark(f"the rows of {path} need much memory")
                files.append((path, file.metadata.num_rows))
        except (pa.ArrowException, OSError) as error:
            raise NeedsSpark(f"Arrow does not read {path} ({error})") from None
    assert names is not None
    return Read(names, pa.Table.from_batches([_of_spark(batch) for batch in batches]), files)


def _check(file: pq.ParquetFile, path: Path, wanted: Sequence[str]) -> None:
    """Raises NeedsSpark for what Arrow and Spark may read in different ways."""
    if any("." in name for name in file.schema_arrow.names):
        raise NeedsSpark(f"a name of a column of {path} has a dot")
    for leaf in map(file.schema.column, range(len(file.schema))):
        lists = leaf.path.count(".list.")
        is_known = leaf.logical_type.type in _LOGICAL and leaf.physical_type != "INT96"
        if leaf.path.partition(".")[0] in wanted and not (
            is_known and leaf.max_repetition_level == lists
        ):
            stored = f"{leaf.physical_type}, {leaf.logical_type.type}"
            raise NeedsSpark(f"column {leaf.path} of {path} is stored as {stored}")
    known = file.metadata.metadata or {}
    version = known.get(_SPARKS_VERSION, b"3").partition(b".")[0]
    if any(one in known for one in _OLD_CALENDAR) or int(version) < 3:
        raise NeedsSpark(f"the dates of {path} are in an old calendar")
    if not _SPARKS_TYPES.issuperset(_SPARKS_TYPE.findall(known.get(_SPARKS_SCHEMA, b""))):
        raise NeedsSpark(f"{path} has columns of a type of Spark's own")


def _of_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns columns with the types that Spark has for theirs; nanoseconds are rounded down."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        is_fine = pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        kind = pa.timestamp("us", field.type.tz) if is_fine else field.type
        found = floor_divided(column.cast(pa.int64()), 1000) if is_fine else column
        columns.append(found.cast(kind).cast(_plain(kind)))
    return pa.record_batch(columns, batch.schema.names)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Spark has for a type of Arrow."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit in {"ms", "us"}:
        return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if kind not in NAMES:
        raise NeedsSpark(f"there are columns of type {kind}")
    return kind
