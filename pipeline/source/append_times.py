"""The append times of records: the entries of a segment's `.appendtimes`, as arrays.

Of a file only what the broker itself would accept is used: entries whose offsets increase and whose
times do not decrease, up to the first invalid one. They hold for offsets before `until` (see
`append_times_until`), or before the end that the file's END entry confirms. Entries that a
running broker sends hold for the offsets that were asked for and sent, and must be valid, too.
Everywhere else the append time is UNKNOWN; nothing is guessed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidelog.pipeline.source import locations
from tidelog.pipeline.source.splits import ALL_TRUSTED
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.appended import layout
from tidelog.storage.segment.appended.entries import known_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tidelog.pipeline.source.splits import PartitionLog
    from tidelog.storage.log.times.partition_times import PartitionTimes

    Ints = npt.NDArray[np.int64]

UNKNOWN: Final = layout.UNKNOWN
_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


class AppendTimes:
    """The append times of one segment."""

    def __init__(
        self, data: bytes | None, base_offset: int, until: int, *, is_closed: bool = False
    ) -> None:
        """Parses the bytes of a file; None: there is no file.

        Append times of offsets from `until` on are unknown. END entries and impossible entries in
        the file move this limit; the file of a closed segment has to have an END entry.
        """
        self._offsets: Ints = np.empty(0, np.int64)
        self._times: Ints = np.empty(0, np.int64)
        self._until = until
        size = len(layout.HEADER)
        stored = None if data is None else layout.layout_of(data[:size], base_offset)
        if data is None or stored is None:
            return
        times, offsets = _stored(data[size:], stored)
        count = len(times)
        ends = np.flatnonzero(times == layout.END)
        if len(ends):
            first = int(ends[0])
            vouched = base_offset + int(offsets[first])
            # An END entry before the last is the result of a power loss: nothing after it is known.
            is_last = first == count - 1 and not (is_closed and stored.is_checked)
            self._until = max(until, vouched) if is_last else vouched
            times, offsets = times[:first], offsets[:first]
        elif is_closed and stored.is_checked and count:
            self._until = min(until, base_offset + int(offsets[-1]) + 1)
        count = _believable(times, offsets) if count and offsets[0] == 0 else 0
        if count < len(times):
            self._until = min(
                self._until, base_offset + int(offsets[count - 1]) + 1 if count else 0
            )
        self._times, self._offsets = times[:count], offsets[:count] + base_offset

    def at(self, offsets: Ints) -> Ints:
        """Returns the append time of each offset, UNKNOWN where no answer has told it."""
        times = _floor(self._offsets, self._times, offsets)
        return np.where(offsets < self._until, times, UNKNOWN)


class AppendTimesAnswer(NamedTuple):
    """The append times of one fetch.

    `segments` are (base offset, entries); it is empty if the broker sent none.
    """

    offset: int  # the offset asked for
    following: int  # the offset after the last batch
    segments: tuple[tuple[int, bytes], ...]


class FetchedTimes:
    """The append times that a broker sent, answer by answer, in the order of their offsets."""

    def __init__(self, answers: tuple[AppendTimesAnswer, ...] = ()) -> None:
        """Stores the answers; they are parsed when they are needed."""
        self._answers = answers

    def with_answer(self, answer: AppendTimesAnswer) -> FetchedTimes:
        """Returns these append times and those of one more answer."""
        return FetchedTimes((*self._answers, answer))

    def of_last_answer(self) -> FetchedTimes:
        """Returns the append times of the last answer only."""
        return FetchedTimes(self._answers[-1:])

    def at(self, offsets: Ints) -> Ints:
        """Returns the append time of each of these offsets, UNKNOWN if it is not known."""
        return _floor(*self._entries, offsets)

    @cached_property
    def _entries(self) -> tuple[Ints, Ints]:
        parts = [part for answer in self._answers for part in _parts(answer)]
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        offsets = np.concatenate([part[0] for part in parts])
        # An entry before the start of its answer holds from that start on.
        return np.maximum.accumulate(offsets), np.concatenate([part[1] for part in parts])


def _parts(answer: AppendTimesAnswer) -> Iterator[tuple[Ints, Ints]]:
    """Yields offsets, and append times that hold from them on, within the range of the answer."""
    yield np.array([answer.offset], np.int64), np.array([UNKNOWN], np.int64)
    for base_offset, data in answer.segments:
        times, offsets = _entries(data)
        offsets += base_offset
        count = _believable(times, offsets)
        if count < len(times) or not count:
            behind = int(offsets[count - 1]) + 1 if count else base_offset
            times = np.append(times[:count], UNKNOWN)
            offsets = np.append(offsets[:count], behind)
        is_meant = offsets < answer.following
        yield offsets[is_meant], times[is_meant]


def _stored(data: bytes, stored: layout.Layout) -> tuple[Ints, Ints]:
    """Returns times and relative offsets of a file's complete entries, END entries too.

    UNKNOWN ones stand for damaged ones.
    """
    data = data[: len(data) // stored.entry_size * stored.entry_size]
    plain = stored.plain(data, 0)
    if plain is not None:
        return _entries(plain)
    whole = np.array([*known_parts(stored.parse(data, 0))], np.int64)
    return whole[:, 0], whole[:, 1]


def _entries(data: bytes) -> tuple[Ints, Ints]:
    """Returns times and relative offsets of the complete entries, as Fetch has them."""
    entries = np.frombuffer(data, _ENTRY, len(data) // layout.ENTRY_SIZE)
    return entries["time"].astype(np.int64), entries["offset"].astype(np.int64)


def _floor(starts: Ints, times: Ints, offsets: Ints) -> Ints:
    """Returns the append time at each offset, UNKNOWN before the first start."""
    if not len(starts):
        return np.full(len(offsets), UNKNOWN, np.int64)
    found = np.searchsorted(starts, offsets, side="right") - 1
    return np.where(found >= 0, times[np.maximum(found, 0)], UNKNOWN)


def _believable(times: Ints, offsets: Ints) -> int:
    """Returns how many first entries are valid.

    In these, offsets grow, times do not decrease, and there is no END entry.
    """
    if not len(times):
        return 0
    known = times != UNKNOWN
    largest = np.maximum.accumulate(times)  # UNKNOWN is the smallest int64
    wrong = times == layout.END
    wrong[1:] |= (offsets[1:] <= offsets[:-1]) | (known[1:] & (times[1:] < largest[:-1]))
    return int(np.argmax(wrong)) if wrong.any() else len(times)


# --- how far a file can be trusted -----------------------------------------------------------------


def times_of(log: PartitionLog) -> PartitionTimes | None:
    """Returns what `partition.times` of a log says; None if there is none. Raises OSError."""
    data = locations.read(locations.join(log.directory, partition_times.FILE_NAME))
    return None if data is None else partition_times.parse(data)


def append_times_until(log: PartitionLog, times: PartitionTimes | None) -> int:
    """Returns the offset before which `.appendtimes` is valid, by the broker's rules.

    All of it is valid while the broker runs, or after it was killed, on the machine and since the
    boot in which it ran. Elsewhere it is valid up to what `partition.times` covers. END entries in
    the files are evaluated when the files are read.
    """
    if times is None:
        return 0
    if not log.was_clean and times.boot_id and times.boot_id == this_boot():
        return ALL_TRUSTED
    return times.covered_offset


def this_boot() -> str:
    """Returns the id of this boot of the machine; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
