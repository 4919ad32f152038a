"""The records of one fetch as lists, with the append times that a tidelog broker sends beside them.

A list for each field is built by loops that are compiled, an object for each record is not. Append times
come as entries of `.appendtimes` (docs/formats.md): one holds from its offset on, up to the next one. What
cannot be such entries, or belongs to other offsets than were sent, is unknown: nothing is guessed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.protocol.records.column_buffers import BATCH_FIELDS, ROW_END
from tidelog.protocol.records.layout import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.protocol.records.column_buffers import ColumnBuffers

_ENTRY: Final = struct.Struct(
    ">qi"
)  # an append time, and from which offset on, after the segment's base
_UNKNOWN: Final = -(2**63)
_END: Final = _UNKNOWN + 1  # of a file, never of a fetch
_LAST_OFFSET: Final = Batch._fields.index("last_offset")
_ATTRIBUTES: Final = Batch._fields.index("attributes")
_MAGIC: Final = Batch._fields.index("magic")
_MAX_TIMESTAMP: Final = Batch._fields.index("max_timestamp")

Headers = tuple[tuple[bytes, bytes | None], ...]


class Consumed(NamedTuple):
    """Records of one partition in the order of their offsets: a list of each field."""

    offsets: list[int]
    timestamps: list[int]
    """As consumers see them, in ms; -1: none."""
    is_log_append: list[bool]
    """Whether the broker has set the time."""
    append_times: list[int | None]
    """In ms; None: unknown, or not asked for."""
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]

    def part(self, start: int, end: int) -> Consumed:
        """Returns the records of the rows from `start` on, up to and without `end`."""
        return Consumed(*(column[start:end] for column in self))  # type: ignore[arg-type]

    def only(self, chosen: Iterable[bool]) -> Consumed:
        """Returns the records whose value in `chosen` is true."""
        which = list(chosen)
        return Consumed(*(list(compress(column, which)) for column in self))  # type: ignore[arg-type]


class FetchedAppendTimes:
    """The append times that came with one fetch, by offset."""

    def __init__(self, segments: Iterable[tuple[int, bytes]], begin: int, following: int) -> None:
        """Parses the entries of each segment, for the offsets from `begin` to before `following`."""
        self._offsets = [begin]
        self._times: list[int | None] = [None]
        for base_offset, entries in segments:
            for offset, time in _believed(base_offset, entries):
                if offset < following:
                    self._offsets.append(max(offset, self._offsets[-1]))
                    self._times.append(time)

    def at(self, offset: int) -> int | None:
        """Returns the append time of what is at an offset, in ms; None if it is unknown."""
        found = bisect_right(self._offsets, offset)
        return self._times[found - 1] if found else None


def _believed(base_offset: int, entries: bytes) -> Iterator[tuple[int, int | None]]:
    """Yields offsets, and append times from them on; None from the first impossible entry on."""
    last_offset = base_offset - 1
    largest = _UNKNOWN
    for time, relative in _ENTRY.iter_unpack(entries[: len(entries) // _ENTRY.size * _ENTRY.size]):
        offset = base_offset + relative
        if offset <= last_offset or time == _END or _UNKNOWN < time < largest:
            break
        yield offset, None if time == _UNKNOWN else time
        last_offset, largest = offset, max(time, largest)
    else:
        if last_offset >= base_offset:
            return
    yield last_offset + 1, None


def consumed(buffers: ColumnBuffers, append_times: FetchedAppendTimes) -> Consumed:
    """Returns the records of columns that were read whole."""
    count = buffers.record_count
    is_log_append: list[bool] = []
    appended: list[int | None] = []
    rows = _int64s(buffers.batches, buffers.batch_count * BATCH_FIELDS)
    for start in range(0, len(rows), BATCH_FIELDS):
        row = rows[start : start + BATCH_FIELDS]
        records = row[ROW_END] - len(appended)
        is_stamped = row[_MAGIC] > 0 and bool(row[_ATTRIBUTES] & LOG_APPEND_TIME_BIT)
        time = append_times.at(row[_LAST_OFFSET])
        if is_stamped and row[_MAX_TIMESTAMP] != NO_TIMESTAMP:
            time = row[_MAX_TIMESTAMP]
        is_log_append += [is_stamped] * records
        appended += [time] * records
    return Consumed(
        _int64s(buffers.offsets, count),
        _int64s(buffers.timestamps, count),
        is_log_append,
        appended,
        _column(buffers.keys, buffers.key_ends, buffers.key_valid, count),
        _column(buffers.values, buffers.value_ends, buffers.value_valid, count),
        _headers(buffers, count),
    )


def _int64s(buffer: bytearray, count: int) -> list[int]:
    return memoryview(buffer)[: count * 8].cast("q").tolist()


def _int32s(buffer: bytearray, count: int) -> list[int]:
    return memoryview(buffer)[: count * 4].cast("i").tolist()


def _cut(data: bytearray, ends: bytearray, count: int) -> list[bytes]:
    """Returns the contents of a column."""
    found = _int32s(ends, count + 1)
    whole = bytes(memoryview(data)[: found[-1]])
    return [whole[start:end] for start, end in pairwise(found)]


def _column(data: bytearray, ends: bytearray, valid: bytearray, count: int) -> list[bytes | None]:
    """Returns the contents of a column, None where there is none."""
    bits = int.from_bytes(valid[: (count + 7) // 8], "little") & ((1 << count) - 1)
    if not bits:
        return [None] * count
    found: list[bytes | None] = [*_cut(data, ends, count)]
    if bits.bit_count() < count:
        found = [
            each if valid[row >> 3] >> (row & 7) & 1 else None for row, each in enumerate(found)
        ]
    return found


def _headers(buffers: ColumnBuffers, count: int) -> list[Headers]:
    number = buffers.header_count
    if not number:
        return [()] * count
    names = _cut(buffers.header_keys, buffers.header_key_ends, number)
    values = _column(
        buffers.header_values, buffers.header_value_ends, buffers.header_value_valid, number
    )
    pairs = tuple(zip(names, values, strict=True))
    ends = _int32s(buffers.header_ends, count + 1)
    return [pairs[start:end] for start, end in pairwise(ends)]
