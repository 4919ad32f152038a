"""Arrow arrays over the buffers of the decoder, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from protocol.records.columns import ColumnBuffers

HEADERS: Any = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def keys(buffers: ColumnBuffers) -> Any:
    """Returns the keys."""
    return _binary(buffers.record_count, buffers.key_valid, buffers.key_ends, buffers.keys)


def values(buffers: ColumnBuffers) -> Any:
    """Returns the values."""
    return _binary(buffers.record_count, buffers.value_valid, buffers.value_ends, buffers.values)


def headers(buffers: ColumnBuffers) -> Any:
    """Returns the headers; null for a record without headers, as in Spark's own source."""
    count = buffers.record_count
    if not buffers.header_count:
        return pa.nulls(count, HEADERS)
    names = _names(buffers)
    contents = _binary(
        buffers.header_count,
        buffers.header_value_valid,
        buffers.header_value_ends,
        buffers.header_values,
    )
    inner = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    ends = np.frombuffer(buffers.header_ends, np.int32, count + 1)
    valid = np.packbits(ends[1:] != ends[:-1], bitorder="little")
    return pa.Array.from_buffers(
        HEADERS, count, [pa.py_buffer(valid), pa.py_buffer(buffers.header_ends)], children=[inner]
    )


def _names(buffers: ColumnBuffers) -> Any:
    """Returns the names of headers; a name that is not UTF-8 is decoded as a Java client does."""
    ends, data = pa.py_buffer(buffers.header_key_ends), pa.py_buffer(buffers.header_keys)
    names = pa.Array.from_buffers(pa.string(), buffers.header_count, [None, ends, data])
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), buffers.header_count, [None, ends, data])
        return pa.array([name.decode(errors="replace") for name in raw.to_pylist()], pa.string())
    return names


def _binary(count: int, valid: bytearray, ends: bytearray, data: bytearray) -> Any:
    return pa.Array.from_buffers(
        pa.binary(), count, [pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    )
