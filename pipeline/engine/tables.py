"""Sums by key that can be merged in any order, and log-linear histograms made of them.

A histogram counts values in buckets. 0 has its own bucket, and each power of two is cut into 128
equal parts, so each whole number below 256 has its own bucket. A quantile read from a histogram is
the largest value of its bucket, so it is never too small and at most 1/128 (0.8 %) too large.
Values are uint64 magnitudes; a negative value has the negative index of its magnitude.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Magnitudes = npt.NDArray[np.uint64]

PART_BITS: Final = 7
RELATIVE_ERROR: Final = 2.0**-PART_BITS
_SHIFT: Final = 52 - PART_BITS  # a double has 52 bits of fraction
_ONE: Final = 1023 << PART_BITS  # the exponent of 1.0 after those bits are cut off
_MOST_PENDING: Final = 1 << 17


def buckets_of(magnitudes: Magnitudes) -> Ints:
    """Returns the index of each magnitude's bucket; larger magnitudes have larger indexes."""
    bits = magnitudes.astype(np.float64).view(np.int64)
    bits >>= _SHIFT
    bits -= _ONE - 1
    np.maximum(bits, 0, out=bits)
    return bits


def largest_in(index: int) -> int:
    """Returns the largest value of a bucket; for a negative bucket, the value nearest to zero."""
    if index == 0:
        return 0
    if index < 0:
        exponent, part = divmod(-index - 1, 1 << PART_BITS)
        return -_least(exponent, part)
    exponent, part = divmod(index - 1, 1 << PART_BITS)
    return _least(exponent, part + 1) - 1


def _least(exponent: int, part: int) -> int:
    """Returns the smallest whole number at or above the lower bound of a bucket."""
    return -(-(((1 << PART_BITS) + part) << exponent) >> PART_BITS)


def magnitude(larger: Ints, smaller: Ints) -> Magnitudes:
    """Returns larger - smaller exactly, over all of int64; `larger` must not be below `smaller`."""
    return larger.view(np.uint64) - smaller.view(np.uint64)


class Table:
    """Rows of int64 columns, some of them keys; rows with the same key are combined into one.

    Of the other columns the sum, the smallest or the largest value is kept.
    """

    def __init__(self, keys: int, reductions: str) -> None:
        """Begins empty; `reductions` has a letter a value column: "+" sum, "<" least, ">" most."""
        self._keys, self._reductions = keys, reductions
        self._rows: list[tuple[Ints, ...]] = []
        self._pending = 0

    def add(self, *columns: Ints) -> None:
        """Adds rows."""
        if len(columns[0]):
            self._rows.append(columns)
            self._pending += len(columns[0])
            if self._pending > _MOST_PENDING and len(self._rows) > 1:
                self.columns()

    def merge(self, other: Table) -> None:
        """Adds the rows of another table."""
        self.add(*other.columns())

    def __len__(self) -> int:
        return len(self.columns()[0])

    def columns(self) -> tuple[Ints, ...]:
        """Returns the columns, with one row for each key, ordered by key."""
        width = self._keys + len(self._reductions)
        if not self._rows:
            return tuple(np.empty(0, np.int64) for _ in range(width))
        if self._pending:
            parts = list(zip(*self._rows, strict=True))
            joined = [part[0] if len(part) == 1 else np.concatenate(part) for part in parts]
            self._rows, self._pending = [self._reduced(joined)], 0
        return self._rows[0]

    def _reduced(self, columns: Sequence[Ints]) -> tuple[Ints, ...]:
        keys = columns[: self._keys]
        order = np.lexsort(keys[::-1])
        sorted_keys = [key[order] for key in keys]
        differs = np.zeros(len(order), bool)
        differs[0] = True
        for key in sorted_keys:
            differs[1:] |= key[1:] != key[:-1]
        starts = np.flatnonzero(differs)
        reduce = {"+": np.add, "<": np.minimum, ">": np.maximum}
        values = [
            reduce[how].reduceat(column[order], starts)
            for how, column in zip(self._reductions, columns[self._keys :], strict=True)
        ]
        return (*(key[starts] for key in sorted_keys), *values)

    def coarsened(self, factor: int) -> Table:
        """Returns the table with the first key divided by `factor`, rounded down."""
        first, *others = self.columns()
        table = Table(self._keys, self._reductions)
        table.add(first // factor, *others)
        return table

    def __getstate__(self) -> dict[str, Any]:
        self.columns()
        return self.__dict__


def count_pairs(groups: Ints | int, buckets: Ints) -> tuple[Ints, Ints, Ints]:
    """Counts how often each pair of a group and a bucket occurs: groups, buckets, counts."""
    least, most = int(buckets.min()), int(buckets.max())
    width = most - least + 1
    cells = buckets - least
    if isinstance(groups, int):
        counts = np.bincount(cells)
        found = np.flatnonzero(counts)
        return np.full(len(found), groups, np.int64), found + least, counts[found]
    first = int(groups.min())
    span = int(groups.max()) - first + 1
    if span * width > 4 * len(buckets) + 65_536:
        return groups, buckets, np.ones(len(buckets), np.int64)
    cells += (groups - first) * width
    counts = np.bincount(cells)
    found = np.flatnonzero(counts)
    return found // width + first, found % width + least, counts[found]


def quantile(buckets: Ints, counts: Ints, share: float) -> int | None:
    """Returns an upper bound of the value below which a share of the values lie; None of no values.

    By nearest rank: the value of rank ceil(share * count). `share` is used to six digits.
    """
    total = int(counts.sum())
    if not total:
        return None
    millionths = round(share * 1_000_000)
    rank = max(-(-total * millionths // 1_000_000), 1)
    order = np.argsort(buckets, kind="stable")
    reached = np.cumsum(counts[order])
    return largest_in(int(buckets[order][np.searchsorted(reached, rank)]))
