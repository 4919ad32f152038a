"""Sets of offsets, and the exact map from the offsets of one cluster to those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tidelog.pipeline.replay.offset_map import OffsetRange

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

NOWHERE: Final = -1
_CHUNK: Final = 1 << 20


class Ambiguous(ValueError):
    """A map that says two different things about one record."""


class Spans:
    """A set of offsets, stored as spans of consecutive offsets, in order."""

    def __init__(self, offsets: Iterable[Ints] = ()) -> None:
        self._starts: list[Ints] = []
        self._ends: list[Ints] = []
        self.count = 0
        self.last: int | None = None
        for one in offsets:
            self.add(one)

    def add(self, offsets: Ints) -> None:
        """Adds offsets after those in the set."""
        if not len(offsets):
            return
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        self._starts.append(offsets[np.concatenate([[0], breaks])])
        self._ends.append(offsets[np.concatenate([breaks - 1, [len(offsets) - 1]])] + 1)
        self.count += len(offsets)
        self.last = int(offsets[-1])

    def has(self, offsets: Ints) -> Bools:
        """Returns which of these offsets are in the set."""
        starts, ends = self._merged()
        if not len(starts):
            return np.zeros(len(offsets), np.bool_)
        place = np.searchsorted(starts, offsets, side="right") - 1
        found: Bools = (place >= 0) & (offsets < ends[np.maximum(place, 0)])
        return found

    def chunks(self, low: int = 0) -> Iterator[Ints]:
        """Yields the offsets from `low` on, in chunks."""
        starts, ends = self._merged()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            for first in range(max(start, low), end, _CHUNK):
                yield np.arange(first, min(first + _CHUNK, end), dtype=np.int64)

    def _merged(self) -> tuple[Ints, Ints]:
        if len(self._starts) > 1:
            starts, ends = np.concatenate(self._starts), np.concatenate(self._ends)
            is_joined = starts[1:] == ends[:-1]
            self._starts = [starts[np.concatenate([[True], ~is_joined])]]
            self._ends = [ends[np.concatenate([~is_joined, [True]])]]
        if not self._starts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return self._starts[0], self._ends[0]


class OffsetMap:
    """The exact target offsets of one partition's records, from one or several runs of mirror."""

    def __init__(self, runs: Sequence[OffsetRange]) -> None:
        """Combines runs, in any order.

        Raises Ambiguous if a record has two targets, or a target two records.
        """
        table = np.array(sorted(set(runs)), np.int64).reshape(-1, 3)
        self._source, self._target, self._count = table[:, 0], table[:, 1], table[:, 2]
        self._order = np.argsort(self._target, kind="stable")
        for starts, counts, side in (
            (self._source, self._count, "source"),
            (self._target[self._order], self._count[self._order], "target"),
        ):
            twice = np.flatnonzero(starts[1:] < starts[:-1] + counts[:-1])
            if len(twice):
                raise Ambiguous(f"offset {starts[twice[0] + 1]} of the {side} is in the map twice")

    def __len__(self) -> int:
        return int(self._count.sum())

    def targets_of(self, offsets: Ints) -> Ints:
        """Returns the target offsets of source records, NOWHERE for those not in the map."""
        return _moved(offsets, self._source, self._target, self._count)

    def place_of(self, offset: int) -> int:
        """Returns the target offset of one source record, NOWHERE if it is not in the map."""
        return int(self.targets_of(np.array([offset], np.int64))[0])

    def sources_of(self, offsets: Ints) -> Ints:
        """Returns the source offsets of target records, NOWHERE for those not in the map."""
        order = self._order
        return _moved(offsets, self._target[order], self._source[order], self._count[order])

    def choose(self, committed: int) -> int | None:
        """Returns the first offset in the target of any record at or after `committed`.

        If there is none, it is the offset after every earlier record. None: the map is empty.
        """
        if not len(self._source):
            return None
        skipped = np.maximum(0, committed - self._source)
        is_unread = skipped < self._count
        if is_unread.any():
            return int((self._target + skipped)[is_unread].min())
        return int((self._target + self._count).max())

    @property
    def source_range(self) -> tuple[int, int]:
        """Returns first and end offset of the source in the map; (0, 0) for an empty map."""
        if not len(self._source):
            return 0, 0
        return int(self._source[0]), int(self._source[-1] + self._count[-1])


def _moved(offsets: Ints, starts: Ints, others: Ints, counts: Ints) -> Ints:
    if not len(starts):
        return np.full(len(offsets), NOWHERE, np.int64)
    place = np.maximum(np.searchsorted(starts, offsets, side="right") - 1, 0)
    into = offsets - starts[place]
    return np.where((into >= 0) & (into < counts[place]), others[place] + into, NOWHERE)
