"""Turns rows of a table into records: exact times, partitions by key, headers, Avro values.

`staged` turns an Arrow batch with a time, a key, a value, headers and a partition into the columns that
are staged; `counted` counts these, and `kept` leaves out what the options leave out. This module does
not use Spark: Spark's workers use it, and so does a backfill in one process.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.archive.layout import binary_parts
from tidelog.pipeline.backfill import avro_values
from tidelog.pipeline.backfill.local_times import instants_of
from tidelog.pipeline.backfill.places import place_of
from tidelog.pipeline.engine.plausible import in_other_units
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.source.arrays import HEADERS
from tidelog.pipeline.times import FIRST_MS, LAST_MS, is_local, to_ms
from tidelog.protocol.records import kernels
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

STAGED: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
LOCAL: Final = "local"
"""The unit of a column of Arrow's timestamps without a zone."""
_PER_UNIT: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_WHOLE: Final = "^[+-]?[0-9]+$"
_OUTSIDE: Final = "is outside the range of times: 64 bits of ms"


class BadTime(Exception):
    """A value of the time column that is not a time; the message says why."""

    def __init__(self, row: int, value: object, reason: str) -> None:
        """`row` counts from 0 in the column that was read."""
        super().__init__(reason)
        self.row, self.value = row, value


class Limits(NamedTuple):
    """The oldest and newest time that the topic accepts, and the oldest that its retention keeps.

    `now_ms` is for the rule by which a time looks like one of another unit.
    """

    oldest_ms: int
    newest_ms: int
    kept_ms: int
    now_ms: int


class Counts(NamedTuple):
    """The counts that are made before anything is written."""

    rows: int = 0
    without_time: int = 0
    elsewhere: int = 0  # a partition that the topic does not have
    too_old: int = 0
    too_new: int = 0
    expired: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    in_other_units: Mapping[str, int] = {}  # by unit, how many times look like it instead of ms

    def plus(self, other: Counts) -> Counts:
        """Returns the counts of both."""
        both = (self, other)
        firsts = [one.first_ms for one in both if one.first_ms is not None]
        lasts = [one.last_ms for one in both if one.last_ms is not None]
        units = Counter(self.in_other_units) + Counter(other.in_other_units)
        sums = [one + two for one, two in zip(self[:6], other[:6], strict=True)]
        ends = min(firsts, default=None), max(lasts, default=None)
        return Counts._make([*sums, *ends, dict(units)])


class Staging(NamedTuple):
    """How rows become records: the unit of times, the zone of those without one, the partitions.

    `column` is the name of the time column, for errors. `schema` is the text of an Avro
    schema and its id, for values that are structs.
    """

    unit: str
    zone: str | None
    partition_count: int
    column: str
    schema: tuple[str, int] | None = None


def staged(batch: pa.RecordBatch, how: Staging) -> pa.RecordBatch:
    """Returns the columns to stage for rows: `time`, `key`, `value`, `headers`, `partition`.

    A null time stays null. A row without a partition goes where its key goes, and one without a key
    where its value would go as a key. Raises PipelineError for an invalid time, which says where it is
    by the columns `file` and `row`.
    """
    try:
        times = times_of(batch.column("time"), how.unit, how.zone)
    except BadTime as error:
        file, row, value = (batch.column(n)[error.row].as_py() for n in ("file", "row", "value"))
        where = place_of(file, row, str(error.value), value)
        raise PipelineError(f"column {how.column}: {error} ({where})") from None
    key, value = batch.column("key"), batch.column("value")
    if how.schema is not None:
        value = avro_values.encoded(value, *how.schema)
    partitions = pa.array(partitions_of(key, value, how.partition_count), pa.int32())
    return pa.record_batch(
        [
            pc.coalesce(batch.column("partition").cast(pa.int32()), partitions),
            times,
            key.cast(pa.binary()),
            value.cast(pa.binary()),
            batch.column("headers").cast(HEADERS),
        ],
        schema=STAGED,
    )


def counted(batch: pa.RecordBatch, partition_count: int, limits: Limits) -> Counts:
    """Counts staged rows."""
    stamps, partitions = batch.column("timestamp_ms"), batch.column("partition").to_numpy()
    times = stamps.filter(pc.not_equal(stamps, NO_TIMESTAMP)).to_numpy()
    ends = pc.min_max(stamps).as_py()
    units = in_other_units(times, limits.now_ms)
    return Counts(
        batch.num_rows,
        batch.num_rows - len(times),
        int(((partitions < 0) | (partitions >= partition_count)).sum()),
        int((times < limits.oldest_ms).sum()),
        int((times > limits.newest_ms).sum()),
        int((times < limits.kept_ms).sum()),
        ends["min"],
        ends["max"],
        {unit: int(meant.sum()) for unit, meant in units},
    )


def kept(
    batch: pa.RecordBatch, limits: Limits, *, drops_timeless: bool, drops_outside: bool
) -> pa.RecordBatch:
    """Returns staged rows without those that are to be left out."""
    stamps = batch.column("timestamp_ms").fill_null(NO_TIMESTAMP).to_numpy()
    has_time = stamps != NO_TIMESTAMP
    is_inside = (stamps >= limits.oldest_ms) & (stamps <= limits.newest_ms)
    keeps_timeless, keeps_outside = not drops_timeless, not drops_outside
    return batch.filter(pa.array(np.where(has_time, is_inside | keeps_outside, keeps_timeless)))


def times_of(column: pa.Array, unit: str, zone: str | None = None) -> pa.Array:
    """Returns a column as int64 ms, rounded down; null stays null. Raises BadTime.

    `zone` is that of texts and timestamps that have none.
    """
    if unit == "iso":
        return _of_texts(column.cast(pa.string()).to_pylist(), zone)
    if unit == LOCAL:
        assert zone is not None
        local_us = column.cast(pa.timestamp("us")).cast(pa.int64())
        return _in_range(instants_of(floor_divided(local_us, 1000).to_pylist(), zone))
    numbers = _whole_numbers(column, unit)
    factor, divisor = _PER_UNIT[unit]
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    if factor > 1:
        outside = (values > LAST_MS // factor) | (values < -(-FIRST_MS // factor))
        if outside.any():
            row = int(outside.argmax())
            raise BadTime(row, values[row], f"{values[row]} {unit} {_OUTSIDE}")
        values = values * factor
    elif divisor > 1:
        return floor_divided(numbers, divisor)
    return pa.array(values, pa.int64(), mask=~numbers.is_valid().to_numpy(zero_copy_only=False))


def _whole_numbers(column: pa.Array, unit: str) -> pa.Array:
    """Returns numbers, or texts of them, as int64."""
    is_text = pa.types.is_string(column.type)
    if not is_text or pc.all(pc.match_substring_regex(column, _WHOLE)).as_py():
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    found: list[int | None] = []
    for row, value in enumerate(column.to_pylist()):
        text = str(value).strip()
        if value is not None and (not re.match(_WHOLE, text) or not -(2**63) <= int(text) < 2**63):
            raise BadTime(row, value, f"{value!r} is not a whole number of {unit}")
        found.append(None if value is None else int(text))
    return pa.array(found, pa.int64())


def floor_divided(numbers: pa.Array, divisor: int) -> pa.Array:
    """Returns whole numbers divided and rounded down; null stays null."""
    values = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), divisor)
    return pa.array(values, pa.int64(), mask=~numbers.is_valid().to_numpy(zero_copy_only=False))


def _of_texts(texts: list[str | None], zone: str | None) -> pa.Array:
    found: list[int | None] = []
    local: list[int | None] = []
    for row, text in enumerate(texts):
        is_naive = text is not None and zone is not None and is_local(text)
        try:
            wanted = f"{text.strip()}Z" if text is not None and is_naive else text
            time_ms = None if wanted is None else to_ms(wanted, "iso")
        except ValueError as error:
            hint = (
                ", or say --time-zone for all times that have none" if is_local(text or "") else ""
            )
            raise BadTime(row, text, f"{error}{hint}") from None
        found.append(time_ms)
        local.append(time_ms if is_naive else None)
    if zone is not None:
        instants = instants_of(local, zone)
        found = [one if two is None else two for one, two in zip(found, instants, strict=True)]
    return _in_range(found)


def _in_range(times: list[int | None]) -> pa.Array:
    for row, one in enumerate(times):
        if one is not None and not FIRST_MS <= one <= LAST_MS:
            raise BadTime(row, one, f"a time {_OUTSIDE}")
    return pa.array(times, pa.int64())


def partitions_of(key: pa.Array, value: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    """Returns the partition of each row: by its key, or by its value if it has no key."""
    chosen = _of_keys(key, partition_count)
    missing = chosen < 0
    if missing.any():
        spread = _of_keys(value, partition_count)
        chosen = np.where(missing, np.maximum(spread, 0), chosen).astype(np.int32)
    return chosen


def _of_keys(column: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    ends, valid, data = binary_parts(column)
    found = kernels.partitions_of(ends, valid, data, len(column), partition_count)
    return np.frombuffer(found, np.int32)
