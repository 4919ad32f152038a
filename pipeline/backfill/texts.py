"""Columns as texts, as Spark writes them: JSON (`to_json`), and texts for keys and headers (`cast`).

Python's `json` writes what Spark's Jackson does, but for fractions outside 0.001 to 10 million, which Java
writes with an exponent, in other digits by other versions (JDK-4511638), and for control characters
with a hexadecimal letter. These raise NeedsSpark.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.backfill.local_files import NeedsSpark

if TYPE_CHECKING:
    from collections.abc import Sequence

_LETTERED: Final = re.compile(r"\\u00[01][a-f]")


def json_of(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Returns a JSON object for each row, nulls included. Raises NeedsSpark."""
    if len(set(names)) < len(names):
        raise NeedsSpark("a column is named twice")
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_text).encode
    rows = zip(*map(_values, columns), strict=True)
    texts = [encode(dict(zip(names, row, strict=True))) for row in rows]
    if any(map(_LETTERED.search, texts)):
        raise NeedsSpark("a text has control characters")
    return pa.array(texts, pa.string()).cast(pa.binary())


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns a column as bytes: its text, or what it is if it is bytes. Raises NeedsSpark."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_timestamp(kind):
        raise NeedsSpark(f"a key or a header is of type {kind}")
    if pa.types.is_binary(kind):
        return column
    texts = [None if one is None else str(one) for one in _values(column)]
    if pa.types.is_boolean(kind):
        texts = [one and one.lower() for one in texts]
    return pa.array(texts, pa.string()).cast(pa.binary())


def _values(column: pa.Array) -> list[Any]:
    """Returns the values of a column. Raises NeedsSpark."""
    _check(column)
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        raise NeedsSpark("a text is not UTF-8") from None
    except (ValueError, OverflowError):
        raise NeedsSpark("a date is before year 1 or after 9999") from None


def _check(column: pa.Array) -> None:
    if pa.types.is_nested(column.type):
        parts = column.flatten()
        for part in parts if pa.types.is_struct(column.type) else [parts]:
            _check(part)
    elif pa.types.is_floating(column.type):
        size = pc.abs(column.drop_null())
        is_plain = pc.or_(
            pc.equal(size, 0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7))
        )
        if not pc.all(is_plain).as_py():
            found = size.filter(pc.invert(is_plain))[0]
            raise NeedsSpark(f"Java writes a number like {found} with an exponent")


def _text(value: Any) -> str:
    """Returns bytes, dates and timestamps in JSON; times have six digits of seconds."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert isinstance(value, dt.date)
    return value.isoformat()
