"""Reads JSON lines, and infers their types as Spark does.

Whole numbers are bigint, those with a fraction double, and a column of both is double. A column of nulls
alone is text. Fields are in the order of their names. What Spark would take apart, keep as a line that
is corrupt, or read as text although it is none, is left to Spark.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from tidelog.pipeline.backfill.in_process import lines
from tidelog.pipeline.backfill.in_process.errors import NeedsSpark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.in_process.choice import ChooseColumns
    from tidelog.pipeline.jobs.backfill import BackfillOptions

_LONGEST_LINE: Final = 1_000_000
_INT64: Final = range(-(2**63), 2**63)
_NESTED: Final = frozenset({dict, list})
_SPARKS_OWN: Final = "_corrupt_record"


def read(
    paths: Sequence[Path],
    options: BackfillOptions,
    choose: ChooseColumns,
    _limit_bytes: int | None,
) -> tuple[Sequence[str], pa.Table]:
    """Returns the names of all columns, and those columns that `choose` names, of Spark's types.

    Raises NeedsSpark, and what `choose` raises.
    """
    lines.options_of(options, ())
    rows = [_parsed(line, path) for path in paths for line in lines.of_file(path)]
    if not rows:
        raise NeedsSpark("the table has no rows")
    whole = pa.null()
    for row in _of_each_shape(rows):
        whole = _merged(whole, _kind_of(row))
    schema = {field.name: field.type for field in _finished(whole)}
    if _SPARKS_OWN in schema:
        raise NeedsSpark(f"a column is named {_SPARKS_OWN}")
    wanted = choose(list(schema))
    try:
        columns = [pa.array([row.get(name) for row in rows], schema[name]) for name in wanted]
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise NeedsSpark(f"a value does not fit its column ({error})") from None
    return list(schema), pa.table(columns, names=list(wanted))


def _parsed(line: str, path: Path) -> dict[str, Any]:
    if len(line) > _LONGEST_LINE:
        raise NeedsSpark(f"{path} has lines of more than {_LONGEST_LINE} characters")
    try:
        found = _DECODER.decode(line)
    except (ValueError, RecursionError):
        raise NeedsSpark(f"{lines.named(path, line)} is no plain JSON") from None
    if not isinstance(found, dict):
        raise NeedsSpark(f"{path} has lines that are no objects")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object. Raises NeedsSpark for one without fields, or with two of one name."""
    if not pairs or len({name.lower() for name, _ in pairs}) < len(pairs):
        raise NeedsSpark("an object has no fields, or two of one name")
    return dict(pairs)


def _fraction(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise NeedsSpark(f"there is the number {text}")
    return found


def _constant(text: str) -> NoReturn:
    raise NeedsSpark(f"there is the number {text}")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_fraction, parse_constant=_constant
)


def _of_each_shape(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the first of the rows whose fields have the same types, and all that have inner fields."""
    seen = set()
    for row in rows:
        shape = tuple((name, type(value)) for name, value in row.items())
        if shape not in seen:
            seen.add(shape)
            yield row
        elif any(kind in _NESTED for _, kind in shape):
            yield row


def _kind_of(value: Any) -> pa.DataType:
    """Returns the type of one value; null has a type of its own. Raises NeedsSpark."""
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if value not in _INT64:
            raise NeedsSpark(f"there is the number {value}")
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, dict):
        return pa.struct([(name, _kind_of(one)) for name, one in value.items()])
    inner = pa.null()
    for one in value:
        inner = _merged(inner, _kind_of(one))
    return pa.list_(inner)


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Returns the type of values of two types. Raises NeedsSpark if it is text for what is none."""
    if one == other or pa.types.is_null(one):
        return other
    if pa.types.is_null(other):
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    raise NeedsSpark(f"a column has values of {one} and {other}")


def _finished(kind: pa.DataType) -> pa.DataType:
    """Returns a type with fields in the order of their names, and text for what is always null."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_finished(kind.value_type))
    if not pa.types.is_struct(kind):
        return kind
    names = [field.name for field in kind]
    if len({name.lower() for name in names}) < len(names):
        raise NeedsSpark("names of fields differ in case alone")
    # The order of Java: that of the units of UTF-16.
    ordered = sorted(kind, key=lambda field: field.name.encode("utf-16-be"))
    return pa.struct([(field.name, _finished(field.type)) for field in ordered])
