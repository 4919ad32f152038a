"""Counts what an offset in another cluster costs a group, with a map of offsets or by comparing records.

Each unread record is in one of four groups:

- covered: it is in the other cluster, at or after the chosen offset.
- lost: it is in the other cluster before the chosen offset, so the group never reads it there.
- missing: it is not in the other cluster (not copied yet, or deleted by retention), whatever offset
  is chosen.
- compacted: it was copied, and compaction in the other cluster has removed it since, as it may.

Of the records that the group will read in the other cluster, `duplicates` were read before, and
`foreign` are not in the source.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.pipeline.engine.failover.offsets import NOWHERE
from tidelog.storage.time.timestamp import earlier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tidelog.pipeline.engine.failover.offsets import OffsetMap, Spans

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


class TooMany(Exception):
    """There are more records than the limit for a comparison."""


@dataclass(slots=True)
class Proof:
    """The counts of the unread records; the module docstring defines them.

    Examples are source offsets, except `lost_from`.
    """

    unread: int = 0
    covered: int = 0
    lost: int = 0
    missing: int = 0
    compacted: int = 0
    duplicates: int = 0
    foreign: int = 0
    first_lost: int | None = None
    lost_from: int | None = None  # the lowest offset of a lost record in the target
    first_missing: int | None = None


@dataclass(frozen=True, slots=True)
class TargetLog:
    """The log in the target: its start and end, and which records it has from `known_from` on."""

    start: int
    end: int
    records: Spans
    is_compacted: bool


def prove_by_map(
    offset_map: OffsetMap, unread: Spans, target: TargetLog, committed: int, chosen: int
) -> Proof:
    """Follows every unread record, and every record that will be read again, through the map.

    `target.records` must begin at or before the chosen offset and the target of every unread
    record.
    """
    proof = Proof()
    for offsets in unread.chunks():
        places = offset_map.targets_of(offsets)
        is_inside = (places >= target.start) & (places < target.end) & (places != NOWHERE)
        is_there = is_inside & target.records.has(places)
        is_compacted = is_inside & ~is_there & target.is_compacted
        is_missing = ~is_there & ~is_compacted
        is_lost = is_there & (places < chosen)
        proof.unread += len(offsets)
        proof.covered += int((is_there & ~is_lost).sum())
        proof.lost += int(is_lost.sum())
        proof.missing += int(is_missing.sum())
        proof.compacted += int(is_compacted.sum())
        proof.first_lost = _first(proof.first_lost, offsets, is_lost)
        if is_lost.any():
            proof.lost_from = earlier(int(places[is_lost].min()), proof.lost_from)
        proof.first_missing = _first(proof.first_missing, offsets, is_missing)
    for offsets in target.records.chunks(chosen):
        origins = offset_map.sources_of(offsets)
        proof.foreign += int((origins == NOWHERE).sum())
        proof.duplicates += int(((origins != NOWHERE) & (origins < committed)).sum())
    return proof


def _first(known: int | None, offsets: Ints, chosen: Bools) -> int | None:
    if known is not None or not chosen.any():
        return known
    return int(offsets[int(chosen.argmax())])


Print = bytes
"""Identifies a record: a digest of key, value and headers, and of its time unless clusters stamp it."""


class Comparison:
    """A proof without a map: compares the records of both clusters by their contents.

    Equal records are interchangeable, so they are counted. Add records in this order: every unread
    record; the records of the target from the chosen offset on; if `wants_before`, those before it;
    if `wants_read`, the records that the group has read. Raises TooMany beyond `limit` different
    records.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[Print] = Counter()
        self._offsets: dict[Print, int] = {}
        self._extra: Counter[Print] = Counter()
        self._found = Proof()

    def add_unread(self, offset: int, record: Print) -> None:
        """Adds an unread record of the source."""
        self._found.unread += 1
        self._open[record] += 1
        self._offsets[record] = offset  # of equal records the last counts as lost
        self._check(self._open)

    def add_after(self, record: Print) -> None:
        """Adds a record of the target at or after the chosen offset."""
        if self._open[record] > 0:
            self._take(self._open, record)
            self._found.covered += 1
        else:
            self._extra[record] += 1
            self._check(self._extra)

    def add_before(self, place: int, record: Print) -> None:
        """Adds a record of the target before the chosen offset, in the order of offsets."""
        if record in self._open:
            if self._found.lost_from is None:
                self._found.lost_from = place
            self._take(self._open, record)
            self._found.lost += 1
            self._found.first_lost = earlier(self._offsets[record], self._found.first_lost)

    def add_read(self, record: Print) -> None:
        """Adds a record of the source before the committed offset."""
        if record in self._extra:
            self._take(self._extra, record)
            self._found.duplicates += 1

    @property
    def wants_before(self) -> bool:
        """Whether an unread record has not been found yet."""
        return bool(self._open)

    @property
    def wants_read(self) -> bool:
        """Whether the origin of a record of the target is still unknown."""
        return bool(self._extra)

    def proof(self) -> Proof:
        """Returns the counts."""
        found = self._found
        found.missing = self._open.total()
        found.foreign = self._extra.total()
        if self._open:
            found.first_missing = min(self._offsets[one] for one in self._open)
        return found

    def _check(self, counted: Counter[Print]) -> None:
        if len(counted) > self._limit:
            raise TooMany

    @staticmethod
    def _take(counted: Counter[Print], record: Print) -> None:
        counted[record] -= 1
        if not counted[record]:
            del counted[record]
