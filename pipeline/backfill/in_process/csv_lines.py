"""Reads CSV files that can be read in one way only.

Spark reads lines: a quoted field does not contain the end of one. It takes a backslash for an escape,
and not a doubled quote. So quotes have to surround whole fields without either in them. An empty field
is null. Without `inferSchema` all columns are texts. With it the type of a column follows from all its
values, where their form leaves no doubt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidelog.pipeline.backfill.in_process import lines
from tidelog.pipeline.backfill.in_process.errors import NeedsSpark
from tidelog.pipeline.backfill.in_process.kinds import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.in_process.choice import ChooseColumns
    from tidelog.pipeline.jobs.backfill import BackfillOptions

    Texts = list[str | None]

_KNOWN: Final = frozenset({"header", "inferschema", "sep", "delimiter"})
_SEPARATORS: Final[Mapping[str, str]] = {**{one: one for one in ",;|\t"}, r"\t": "\t"}
_MOST_COLUMNS: Final = 1000
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_INT32: Final = 2**31
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
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


def read(
    paths: Sequence[Path],
    options: BackfillOptions,
    choose: ChooseColumns,
    _limit_bytes: int | None,
) -> tuple[Sequence[str], pa.Table]:
    """Returns the names of all columns, and those columns that `choose` names, of Spark's types.

    Raises NeedsSpark, and what `choose` raises.
    """
    given = lines.options_of(options, _KNOWN)
    separator = _SEPARATORS.get(given.get("sep", given.get("delimiter", ",")))
    if separator is None or {"sep", "delimiter"} <= given.keys():
        raise NeedsSpark("its separator is unusual")
    has_header = lines.is_set(given, "header")
    names: Sequence[str] = ()
    rows: list[Texts] = []
    for path in paths:
        found = _rows(path, separator)
        if not found:
            raise NeedsSpark(f"{path} is empty")
        header = found.pop(0) if has_header else found[0]
        titles = [str(one) if has_header else f"_c{n}" for n, one in enumerate(header)]
        if names and list(names) != titles:
            raise NeedsSpark(f"{path} has other columns than {paths[0]}")
        names = titles
        if (has_header and None in header) or len(names) > _MOST_COLUMNS:
            raise NeedsSpark(f"a column of {path} has no name, or there are too many")
        for number, row in enumerate(found, int(has_header)):
            if len(row) != len(names):
                where = lines.named(path, lines.of_file(path)[number])
                raise NeedsSpark(f"{where} has fewer or more fields than the first")
        rows += found
    wanted = choose(names)
    is_inferred = lines.is_set(given, "inferschema")
    columns = []
    for name in wanted:
        number = names.index(name)
        texts = [row[number] for row in rows]
        columns.append(_inferred(name, texts) if is_inferred else pa.array(texts, pa.string()))
    return names, pa.table(columns, names=list(wanted))


def _rows(path: Path, separator: str) -> list[Texts]:
    """Returns the fields of each line; an empty one is None. Raises NeedsSpark."""
    found = lines.of_file(path)
    has_quotes = any('"' in line for line in found)
    if not has_quotes:
        return [[one or None for one in line.split(separator)] for line in found]
    field = re.compile(
        rf'(?:"([^"\\\\]*)"|([^"\\\\{re.escape(separator)}]*))({re.escape(separator)}|$)'
    )
    rows = []
    for line in found:
        row: Texts = []
        place, end = 0, None
        while end != "":
            one = field.match(line, place)
            if one is None:
                raise NeedsSpark(f"{path} has quotes or backslashes within fields")
            row.append(one[1] or one[2] or None)
            place, end = one.end(), one[3]
        rows.append(row)
    return rows


def _inferred(name: str, texts: Texts) -> pa.Array:
    """Returns a column with the type that Spark infers. Raises NeedsSpark where that is not certain."""
    values = {one for one in texts if one is not None}
    if not values or any(_WORD.match(one) and not _NO_WORDS.fullmatch(one) for one in values):
        return pa.array(texts, pa.string())
    for form, kind in _FORMS:
        if all(map(form.fullmatch, values)):
            try:
                column = pa.array(texts, pa.string()).cast(kind)
            except pa.ArrowInvalid:
                break
            is_narrow = kind == pa.int64() and all(-_INT32 <= int(one) < _INT32 for one in values)
            return column.cast(pa.int32()) if is_narrow else column
    raise NeedsSpark(f"what column {name} contains may be read in several ways")
