"""Avro records of columns, in the form of a schema registry: a zero byte, the schema's id, the record.

The form is that of Confluent's serializers ("wire format"). Times are passed as the numbers that their
logical types stand for, because Python has no dates before year 1.
"""

from __future__ import annotations

import functools
import io
import json
import struct
from typing import Any, Final

import pyarrow as pa

from tidelog.pipeline.backfill.places import shown
from tidelog.pipeline.errors import PipelineError

_FRAME: Final = struct.Struct(">bI")


def encoded(column: pa.Array, schema: str, number: int) -> pa.Array:
    """Returns each struct of a column as bytes. Raises PipelineError for one that does not fit."""
    import fastavro

    parsed = _parsed(schema)
    start = _FRAME.pack(0, number)
    found = []
    plain = column.cast(_plain(column.type))
    for record in plain.to_pylist(maps_as_pydicts="strict"):
        sink = io.BytesIO()
        sink.write(start)
        try:
            fastavro.schemaless_writer(sink, parsed, record)
        except (ValueError, TypeError, OverflowError) as error:
            raise PipelineError(
                f"a row does not fit its Avro schema: {error} ({shown(str(record))})"
            ) from error
        found.append(sink.getvalue())
    return pa.array(found, pa.binary())


@functools.cache
def _parsed(schema: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns a type with numbers for its times, at any depth."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind
