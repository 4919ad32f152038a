"""Types of columns: those of Arrow whose values are written here as Spark writes them, by Spark's names.

All are nullable, as the columns of files are in Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog.pipeline.backfill.in_process.errors import NeedsSpark

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
_IN_JSON: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Names of types in the schemas that Spark stores as JSON, where they differ."""


def name_of(kind: pa.DataType) -> str:
    """Returns the name that Spark has for a type. Raises NeedsSpark for a type that is not known."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind) and kind.num_fields:
        inner = ",".join(f"{field.name}:{name_of(field.type)}" for field in kind)
        return f"struct<{inner}>"
    if pa.types.is_list(kind):
        return f"array<{name_of(kind.value_type)}>"
    raise NeedsSpark(f"there are columns of type {kind}")


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Spark has for a type of Arrow, all of it nullable. Raises NeedsSpark."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit in {"ms", "us"}:
        return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    name_of(kind)
    return kind


def stored_name(kind: Any) -> str:
    """Returns the name of a type in a schema that Spark has stored as JSON."""
    if isinstance(kind, str):
        return _IN_JSON.get(kind, kind)
    if kind["type"] == "struct":
        inner = ",".join(f"{one['name']}:{stored_name(one['type'])}" for one in kind["fields"])
        return f"struct<{inner}>"
    if kind["type"] == "array":
        return f"array<{stored_name(kind['elementType'])}>"
    return str(kind["type"])
