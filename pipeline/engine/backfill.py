"""Turns rows of a table into records: exact times, partitions by key, columns for the encoder.

`staged` turns an Arrow batch with a key, a value and a time into the columns that are staged:
partition, time in ms, key and value. `buffers_of` lays staged columns out for
`protocol.records.column_batches`. This module does not use Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import PipelineError
from pipeline.times import FIRST_MS, LAST_MS, to_ms
from protocol.records import kernels
from protocol.records.columns import ColumnBuffers
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy.typing as npt

    from pipeline.times import Unit

STAGED: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
_PER_UNIT: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def staged(batch: pa.RecordBatch, unit: Unit, partition_count: int) -> pa.RecordBatch:
    """Returns the columns to stage for rows with the columns `time`, `key` and `value`.

    A null time stays null. A row without a key goes where its value would go as a key. Raises
    PipelineError for an invalid time.
    """
    times = times_of(batch.column("time"), unit)
    key, value = batch.column("key"), batch.column("value")
    return pa.record_batch(
        [
            pa.array(_partitions(key, value, partition_count), pa.int32()),
            times,
            key.cast(pa.binary()),
            value.cast(pa.binary()),
        ],
        schema=STAGED,
    )


def times_of(column: pa.Array, unit: Unit) -> pa.Array:
    """Returns a column as int64 ms, rounded down; null stays null. Raises PipelineError."""
    if unit == "iso":
        return pa.array(
            [None if text is None else _iso(text) for text in column.cast(pa.string()).to_pylist()],
            pa.int64(),
        )
    try:
        numbers = column.cast(pa.int64(), safe=True)
    except pa.ArrowInvalid as error:
        raise PipelineError(
            f"the time column has a value that is not a whole number of {unit}: {error}"
        ) from error
    factor, divisor = _PER_UNIT[unit]
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    if factor > 1:
        outside = (values > LAST_MS // factor) | (values < -(-FIRST_MS // factor))
        if outside.any():
            raise PipelineError(
                f"{int(values[outside][0])} {unit} is outside the range of times: 64 bits of ms"
            )
        values = values * factor
    elif divisor > 1:
        values = np.floor_divide(values, divisor)
    return pa.array(values, pa.int64(), mask=~numbers.is_valid().to_numpy(zero_copy_only=False))


def _iso(text: str) -> int:
    try:
        return to_ms(text, "iso")
    except ValueError as error:
        raise PipelineError(f"the time column: {error}") from error


def _partitions(key: pa.Array, value: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    chosen = _of_keys(key, partition_count)
    missing = chosen < 0
    if missing.any():
        spread = _of_keys(value, partition_count)
        chosen = np.where(missing, np.maximum(spread, 0), chosen).astype(np.int32)
    return chosen


def _of_keys(column: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    ends, valid, data = _binary(column)
    found = kernels.partitions_of(ends, valid, data, len(column), partition_count)
    return np.frombuffer(found, np.int32)


def _binary(column: pa.Array) -> tuple[Any, Any, Any]:
    """Returns the ends, the validity (empty if all are valid) and the bytes of a column."""
    column = column.cast(pa.binary())
    if column.offset:
        column = pa.concat_arrays([column])
    if column.offset:  # a single chunk is returned as it is
        column = column.take(pa.array(np.arange(len(column))))
    valid, ends, data = column.buffers()
    return (
        ends if ends is not None and ends.size else bytes(4 * (len(column) + 1)),
        valid if valid is not None and column.null_count else b"",
        data if data is not None else b"",
    )


def buffers_of(timestamps: pa.Array, keys: pa.Array, values: pa.Array) -> ColumnBuffers:
    """Returns staged columns in the form that the encoder takes; a null time is "no time"."""
    made: Any = ColumnBuffers()
    made.record_count = len(timestamps)
    filled = pc.fill_null(timestamps, NO_TIMESTAMP).to_numpy(zero_copy_only=False)
    made.timestamps = np.ascontiguousarray(filled, np.int64).data.cast("B")
    made.key_ends, made.key_valid, made.keys = _binary(keys)
    made.value_ends, made.value_valid, made.values = _binary(values)
    made.header_ends = bytes(4 * (len(timestamps) + 1))
    buffers: ColumnBuffers = made
    return buffers
