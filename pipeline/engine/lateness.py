"""Measures how far each record is behind the largest event time before it, reading in pieces.

The lateness of a record is `max(M, L) - time`. M is the largest time of all earlier pieces, and L
is the largest time of its own piece up to the record itself. A piece is read without knowing M, and
one reading is usually enough:

- L never decreases. The times of the first HEAD records are stored; let H be the largest of them.
- After these records L >= H. So if M <= H, max(M, L) = L, and the counts made without M are right.
- The first HEAD records themselves are counted when M is known.

If M > H, the piece begins further behind than its stored records show. Only then is it read again,
with M given (`Lateness(carry=M)`). H and the largest time of a piece do not depend on M, so every M
is known after the first reading, and no piece is read a third time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidelog.pipeline.engine.tables import Table, buckets_of, count_pairs, magnitude
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tidelog.pipeline.engine.tables import Ints, Magnitudes

HEAD: Final = 4096
HOUR_MS: Final = 3_600_000
_MOST = 2**63 - 1


class Counted(NamedTuple):
    """The counts of late records."""

    cells: Table  # hour, bucket: records
    worst: Table  # hour: the largest lateness, at most 2**63 - 1
    beyond: Ints  # of records with an unknown append time: how many are later than each limit

    @classmethod
    def nothing(cls, limits: Sequence[int]) -> Counted:
        """Returns zero counts for these limits."""
        return cls(Table(2, "+"), Table(1, ">"), np.zeros(len(limits), np.int64))

    def add(self, other: Counted) -> None:
        """Adds the counts of another object."""
        self.cells.merge(other.cells)
        self.worst.merge(other.worst)
        self.beyond.__iadd__(other.beyond)


class Lateness:
    """Counts the late records of one piece of a partition's log, in the order of their offsets."""

    def __init__(self, limits: Sequence[int], carry: int | None = None, head: int = HEAD) -> None:
        """Begins a piece; `carry` is the largest time before it (None: not known, or none)."""
        self.limits = np.asarray(limits, np.uint64)
        self.largest = carry  # the maximum of M (if it is known) and L
        self.counted = Counted.nothing(limits)
        self.head_largest: int | None = None
        self._room = 0 if carry is not None else head
        self._is_cut = False  # there are records after the first HEAD ones
        self._head: list[tuple[Ints, npt.NDArray[np.bool_]]] = []

    def note(self, times: Ints, is_unknown: npt.NDArray[np.bool_]) -> None:
        """Counts records: their times, and whether their append time is unknown."""
        if self._room and len(times):
            kept = min(self._room, len(times))
            self._room -= kept
            self._head.append((times[:kept].copy(), is_unknown[:kept].copy()))
            self.largest = self.head_largest = later(int(times[:kept].max()), self.head_largest)
            times, is_unknown = times[kept:], is_unknown[kept:]
        if len(times):
            self._is_cut = bool(self._head)
            self.largest = _count(times, is_unknown, self.largest, self.limits, self.counted)

    def needs(self, carry: int | None) -> bool:
        """Returns whether the piece must be read again if `carry` is the largest time before it."""
        if carry is None or self.head_largest is None:
            return False
        return self._is_cut and carry > self.head_largest

    def settle(self, carry: int | None) -> Counted:
        """Returns the counts if `carry` is the largest time before the piece.

        A `carry` that was given at the start is used instead.
        """
        if self._head:
            assert not self.needs(carry), "the piece has to be read again"
            times = np.concatenate([times for times, _ in self._head])
            is_unknown = np.concatenate([unknown for _, unknown in self._head])
            _count(times, is_unknown, carry, self.limits, self.counted)
            self._head, self._room = [], 0
            self.head_largest = None
        return self.counted


def _count(
    times: Ints,
    is_unknown: npt.NDArray[np.bool_],
    largest: int | None,
    limits: Magnitudes,
    counted: Counted,
) -> int:
    """Counts late records after a time of `largest`; returns the new largest time."""
    reached = np.maximum.accumulate(times)
    if largest is not None and largest > int(times[0]):
        np.maximum(reached, largest, out=reached)
    is_late = reached > times
    count = int(np.count_nonzero(is_late))
    if not count:
        return int(reached[-1])
    if count == len(times):
        late_times, behind = times, magnitude(reached, times)
    else:
        late_times = times[is_late]
        behind = magnitude(reached[is_late], late_times)
    hours = late_times // HOUR_MS
    counted.cells.add(*count_pairs(hours, buckets_of(behind)))
    changes = np.flatnonzero(np.diff(hours)) + 1
    starts = np.concatenate([np.zeros(1, np.int64), changes])
    worst = np.minimum(np.maximum.reduceat(behind, starts), np.uint64(_MOST))
    counted.worst.add(hours[starts], worst.astype(np.int64))
    if is_unknown.any():
        unknown = behind[is_unknown[is_late]]
        if len(unknown) and unknown.max() > limits[0]:
            places = np.searchsorted(limits, unknown, side="left")
            counted.beyond.__iadd__(beyond(places, len(limits)))
    return int(reached[-1])


def beyond(places: npt.NDArray[np.intp], limits: int) -> Ints:
    """Returns how many values are beyond each ascending limit, from their insertion points."""
    passed = np.bincount(places, minlength=limits + 1)[1:]
    return np.cumsum(passed[::-1])[::-1].astype(np.int64)
