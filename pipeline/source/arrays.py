"""Arrow arrays over buffers: of the decoder, without a copy, and of a few numbers.

`pyarrow.array` imports pandas first. That takes as long as reading a hundred megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.protocol.records.columns import ColumnBuffers

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


def int64s(values: Sequence[int | None]) -> Any:
    """Returns an array of int64. Raises OverflowError."""
    is_known = np.array([value is not None for value in values], np.bool_)
    known = pa.py_buffer(np.packbits(is_known, bitorder="little"))
    data = pa.py_buffer(np.array([value or 0 for value in values], np.int64))
    return pa.Array.from_buffers(pa.int64(), len(values), [known, data])


def int32s(values: Sequence[int]) -> Any:
    """Returns an array of int32."""
    data = pa.py_buffer(np.array(values, np.int32))
    return pa.Array.from_buffers(pa.int32(), len(values), [None, data])


def same_text(text: str, count: int) -> Any:
    """Returns an array that has one text several times."""
    data = text.encode()
    ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(data)))
    return pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(data * count)])
