r"""Columns as texts, as Spark writes them: JSON (`to_json`), and texts for keys and headers (`cast`).

JSON is written as by Jackson: control characters as \n or \u001F, bytes in base64, NaN and infinities
as texts. Times have the format of `pipeline.backfill.staging`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.backfill.in_process.errors import NeedsSpark
from tidelog.pipeline.backfill.in_process.kinds import name_of
from tidelog.pipeline.backfill.in_process.numbers import text_of_double, text_of_float

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NULL: Final = "null"
_SPECIAL: Final = r'["\\\x00-\x1f]'
_ESCAPES: Final = {
    **{number: f"\\u{number:04X}" for number in range(0x20)},
    **{ord(one): f"\\{two}" for one, two in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)},
}
_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31
_DAY_US: Final = 86_400_000_000


def json_of_rows(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Returns a JSON object for each row, nulls included. Raises NeedsSpark."""
    parts: list[Any] = []
    for name, column in zip(names, columns, strict=True):
        title = _escaped(pa.array([name], pa.string()))[0].as_py()
        parts += [f'{"," if parts else "{"}"{title}":', json_of(column)]
    return pc.binary_join_element_wise(*parts, "}", "")


def json_of(column: pa.Array) -> pa.Array:
    """Returns a column as texts in JSON; null is `null`. Raises NeedsSpark."""
    kind = column.type
    if pa.types.is_struct(kind):
        made = json_of_rows([field.name for field in kind], column.flatten())
        return pc.if_else(column.is_valid(), made, _NULL)
    if pa.types.is_list(kind):
        return _json_of_lists(column)
    if pa.types.is_string(kind):
        made = _in_quotes(_escaped(column))
    elif pa.types.is_binary(kind):
        made = _in_quotes(_each(column, lambda data: base64.b64encode(data).decode()))
    elif pa.types.is_floating(kind):
        write = _writer(kind)
        made = _each(column, lambda number: _number(write(number)))
    elif pa.types.is_decimal(kind):
        made = _each(column, str)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        made = _in_quotes(_moments(column))
    else:
        made = column.cast(pa.string())
    return made.fill_null(_NULL)


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns a column as bytes: its text, or what it is if it is bytes. Raises NeedsSpark."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_timestamp(kind):
        raise NeedsSpark(f"a key or a header is of type {name_of(kind)}")
    if pa.types.is_floating(kind):
        column = _each(column, _writer(kind))
    elif pa.types.is_decimal(kind):
        column = _each(column, "{:f}".format)
    elif pa.types.is_date(kind):
        column = _moments(column)
    elif not pa.types.is_binary(kind):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _json_of_lists(column: pa.Array) -> pa.Array:
    """Returns lists as texts in JSON."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    texts = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), json_of(column.flatten()))
    made = pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")
    return pc.if_else(column.is_valid(), made, _NULL)


def _escaped(column: pa.Array) -> pa.Array:
    """Returns texts with the escapes of JSON. Raises NeedsSpark for bytes that are no UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise NeedsSpark("a text is not UTF-8") from None
    if not pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py():
        return column
    return _each(column, lambda text: text.translate(_ESCAPES))


def _moments(column: pa.Array) -> pa.Array:
    """Returns dates and timestamps as texts, with `T` and six digits of seconds. Raises NeedsSpark."""
    is_date = pa.types.is_date(column.type)
    unit = 1 if is_date else _DAY_US
    found = pc.min_max(column.cast(pa.int32() if is_date else pa.int64())).as_py()
    low, high = found["min"], found["max"]
    if low is not None and not (_FIRST_DAY * unit <= low and high < (_LAST_DAY + 1) * unit):
        raise NeedsSpark("a date is before year 1 or after 9999")
    return pc.replace_substring(column.cast(pa.string()), " ", "T")


def _writer(kind: pa.DataType) -> Callable[[float], str]:
    return text_of_double if pa.types.is_float64(kind) else text_of_float


def _number(text: str) -> str:
    """Returns a number in JSON, which has none for NaN and infinities."""
    return f'"{text}"' if text[-1].isalpha() else text


def _in_quotes(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _each(column: pa.Array, make: Callable[[Any], str]) -> pa.Array:
    """Returns a text for each value; null stays null."""
    values = (None if value is None else make(value) for value in column.to_pylist())
    return pa.array(list(values), pa.string())
