"""Arrow arrays over buffers: of the decoder, without a copy, and of a few numbers.

`pyarrow.array` imports pandas first. That takes as long as reading a hundred megabytes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.protocol.records.columns import ColumnBuffers

HEADERS: Any = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADER_NAMES: Any = pa.list_(pa.binary())


def keys(buffers: ColumnBuffers) -> Any:
    """Returns the keys."""
    return _binary(buffers.record_count, buffers.key_valid, buffers.key_ends, buffers.keys)


def values(buffers: ColumnBuffers) -> Any:
    """Returns the values."""
    return _binary(buffers.record_count, buffers.value_valid, buffers.value_ends, buffers.values)


def odd_names(buffers: ColumnBuffers) -> list[bytes] | None:
    """Returns the names of all headers if there is one that is not UTF-8, else None."""
    if not buffers.header_count:
        return None
    try:
        _names(buffers, pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        found: list[bytes] = _names(buffers, pa.binary()).to_pylist()
        return found
    return None


def headers(buffers: ColumnBuffers, odd: list[bytes] | None) -> Any:
    """Returns the headers; null for a record without headers, as in Spark's own source.

    `odd` is what `odd_names` returns: a name that is not UTF-8 is decoded as a Java client does.
    """
    count = buffers.record_count
    if not buffers.header_count:
        return pa.nulls(count, HEADERS)
    if odd is None:
        names = _names(buffers, pa.string())
    else:
        names = pa.array([as_text(name) for name in odd], pa.string())
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


def header_names(buffers: ColumnBuffers, odd: list[bytes] | None) -> Any:
    """Returns all header names as bytes for records with a name that is not UTF-8, else null."""
    count = buffers.record_count
    if odd is None:
        return pa.nulls(count, HEADER_NAMES)
    ends = np.frombuffer(buffers.header_ends, np.int32, count + 1).tolist()
    rows = [odd[low:high] for low, high in itertools.pairwise(ends)]
    return pa.array([row if any(map(_is_odd, row)) else None for row in rows], HEADER_NAMES)


def as_text(name: bytes) -> str:
    """Returns the name of a header as `headers` has it."""
    return name.decode(errors="replace")


def _is_odd(name: bytes) -> bool:
    return as_text(name).encode() != name


def _names(buffers: ColumnBuffers, kind: Any) -> Any:
    ends, data = pa.py_buffer(buffers.header_key_ends), pa.py_buffer(buffers.header_keys)
    return pa.Array.from_buffers(kind, buffers.header_count, [None, ends, data])


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
