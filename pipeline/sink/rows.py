"""Rows of a DataFrame as records: one Arrow batch with the target partition of each row.

A time is `timestamp_ms` where there is such a column, else `timestamp`, rounded down to ms; null is
"no time", as -1 is in `timestamp_ms`. Without either column a record gets the time at which its row
is staged. Keys choose partitions as Java clients do (murmur2) where `partition` is missing or null;
a row without a key goes where its value would go as a key. `header_names` has the names of `headers`
byte by byte where it is not null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.backfill.places import shown
from tidelog.pipeline.backfill.rows import partitions_of
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.source.arrays import HEADER_NAMES, HEADERS, as_text
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tidelog.protocol.topic_partition import TopicPartition

STAGED: Final = pa.schema(
    [
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("header_names", HEADER_NAMES),
    ]
)


def targets_of(
    batch: Any, topic: str | None, count_of: Callable[[str], int]
) -> dict[TopicPartition, npt.NDArray[np.int64]]:
    """Returns the rows of each target partition, in their order.

    `topic` is that of all rows, or None if a column says it; `count_of` returns the number of
    partitions of a topic. Raises PipelineError for a row that has no topic or no such partition.
    """
    found: dict[TopicPartition, npt.NDArray[np.int64]] = {}
    for name, rows in _rows_of_topics(batch, topic):
        chosen = _partitions(batch, name, rows, count_of(name))
        order = np.argsort(chosen, kind="stable")
        cuts = np.flatnonzero(np.diff(chosen[order])) + 1
        for part in np.split(rows[order], cuts):
            if len(part):
                found[name, int(_partition_at(chosen, rows, part))] = part
    return found


def _partition_at(chosen: Any, rows: Any, part: Any) -> int:
    return int(chosen[np.searchsorted(rows, part[0])])


def _rows_of_topics(batch: Any, topic: str | None) -> list[tuple[str, npt.NDArray[np.int64]]]:
    if topic is not None:
        return [(topic, np.arange(batch.num_rows))]
    names = batch.column("topic")
    if names.null_count:
        row = _first(names.is_null())
        raise PipelineError(f"a row has no topic: its column topic is null ({_named(batch, row)})")
    coded = names.cast(pa.string()).dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    return [
        (name, np.flatnonzero(codes == code))
        for code, name in enumerate(coded.dictionary.to_pylist())
    ]


def _partitions(
    batch: Any, topic: str, rows: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int32]:
    """Returns the partitions of these rows, which are those of one topic. Raises PipelineError."""
    names = [name for name in ("key", "value", "partition") if name in batch.schema.names]
    batch = batch.select(names).take(pa.array(rows))
    chosen = partitions_of(_bytes(batch, "key"), _bytes(batch, "value"), count)
    if "partition" not in names:
        return chosen
    given = batch.column("partition").cast(pa.int64())
    numbers = given.fill_null(-1).to_numpy(zero_copy_only=False)
    is_given = given.is_valid().to_numpy(zero_copy_only=False)
    wrong = is_given & ((numbers < 0) | (numbers >= count))
    if wrong.any():
        row = int(wrong.argmax())
        raise PipelineError(
            f"a row names partition {numbers[row]} of topic {topic}, which has {count}"
            f" ({_named(batch, row)})"
        )
    return np.where(is_given, numbers, chosen).astype(np.int32)


def staged(batch: Any, now_ms: int) -> Any:
    """Returns the columns to stage, as `STAGED`. Raises PipelineError for what no record can have."""
    headers = pa.nulls(batch.num_rows, HEADERS)
    if "headers" in batch.schema.names:
        headers = batch.column("headers").cast(HEADERS)
        nameless = pc.list_flatten(headers).field("key").is_null()
        if pc.any(nameless).as_py():
            row = pc.list_parent_indices(headers)[_first(nameless)].as_py()
            raise PipelineError(f"a header has no name: its key is null ({_named(batch, row)})")
    columns = [_times(batch, now_ms), _bytes(batch, "key"), _bytes(batch, "value"), headers]
    return pa.record_batch([*columns, _header_names(batch, headers)], schema=STAGED)


def _header_names(batch: Any, headers: Any) -> Any:
    """Returns the exact names of headers. Raises PipelineError where they are not those of `headers`."""
    if "header_names" not in batch.schema.names:
        return pa.nulls(batch.num_rows, HEADER_NAMES)
    found = batch.column("header_names").cast(HEADER_NAMES)
    rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    chosen = pa.array(rows)
    for row, exact, listed in zip(
        rows.tolist(), found.take(chosen).to_pylist(), headers.take(chosen).to_pylist(), strict=True
    ):
        names = [one["key"] for one in listed or ()]
        if None in exact or [as_text(one) for one in exact] != names:
            told, meant = (", ".join(map(repr, each)) or "nothing" for each in (exact, names))
            raise PipelineError(
                f"header_names has {told}, and headers {meant}: drop the column header_names where"
                f" headers are changed ({_named(batch, row)})"
            )
    return found


def _bytes(batch: Any, name: str) -> Any:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.binary())
    return batch.column(name).cast(pa.binary())


def _first(condition: Any) -> int:
    return int(pc.index(condition, True).as_py())


def _named(batch: Any, row: int) -> str:
    """Returns what identifies a row for its writer: the beginnings of its key and its value."""
    found = {name: _bytes(batch, name)[row].as_py() for name in ("key", "value")}
    return ", ".join(
        f"{name} {shown(data.decode('utf-8', 'replace'))}"
        for name, data in found.items()
        if data is not None
    )


def _times(batch: Any, now_ms: int) -> Any:
    names = batch.schema.names
    if "timestamp_ms" in names:
        return batch.column("timestamp_ms").cast(pa.int64()).fill_null(NO_TIMESTAMP)
    if "timestamp" not in names:
        return pa.array(np.full(batch.num_rows, now_ms, np.int64))
    column = batch.column("timestamp")
    if pa.types.is_timestamp(column.type):  # else it is of type void, and all are null
        column = column.cast(pa.timestamp("us", column.type.tz))
    micros = column.cast(pa.int64())
    is_given = micros.is_valid().to_numpy(zero_copy_only=False)
    millis = np.floor_divide(micros.fill_null(0).to_numpy(zero_copy_only=False), 1000)
    wrong = is_given & (millis == NO_TIMESTAMP)
    if wrong.any():
        raise PipelineError(
            "a row has the time 1969-12-31T23:59:59.999Z, which is -1 ms: that means no time in a"
            f" record ({_named(batch, int(wrong.argmax()))})"
        )
    return pa.array(np.where(is_given, millis, NO_TIMESTAMP))
