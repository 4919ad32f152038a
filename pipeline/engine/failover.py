"""Finds where a group continues in another cluster, and what that costs it.

Pure arithmetic on offsets and times. The offset is chosen by an exact map of offsets (`OffsetMap`),
or by time as in KIP-33. By time: no unread record is older than the next one by more than the
longest latency of the cluster. So a search for the time of the next record less that latency finds
an offset in the other cluster with no unread record before it. That is only an argument;
`prove_by_map` and `Comparison` count. Each unread record is in one of four groups:

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
from typing import TYPE_CHECKING, Final

import numpy as np

from pipeline.engine.plausible import are_odd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from pipeline.replay.offset_map import Run

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

NOWHERE: Final = -1
FIRST_MS: Final = -(2**63)
FIRST_SPECIAL: Final = -6
"""ListOffsets means something else by the milliseconds from here to -1."""
_CHUNK: Final = 1 << 20


class Ambiguous(ValueError):
    """A map that says two different things about one record."""


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

    def __init__(self, runs: Sequence[Run]) -> None:
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


# --- by time -------------------------------------------------------------------------------------


class _Seen:
    """The first time of some records, its offset, and the least time."""

    def __init__(self) -> None:
        self.next_ms: int | None = None
        self.next_offset: int | None = None
        self.least_ms: int | None = None

    def add(self, offsets: Ints, timestamp_ms: Ints) -> None:
        if not len(offsets):
            return
        if self.next_ms is None:
            self.next_ms, self.next_offset = int(timestamp_ms[0]), int(offsets[0])
        least = int(timestamp_ms.min())
        self.least_ms = least if self.least_ms is None else min(self.least_ms, least)


class UnreadTimes:
    """The times of the unread records, collected while they are read.

    Times that cannot be right (`plausible.are_odd`, as of `now_ms`) are counted and otherwise left
    out: one in seconds would put the margin back to 1970. They count where no time can be right.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._plausible, self._all = _Seen(), _Seen()
        self.without = 0
        self.stamped = 0
        self.odd = 0
        self.first_odd: tuple[int, int] | None = None  # offset, time

    def add(
        self,
        offsets: Ints,
        timestamp_ms: Ints,
        append_time_ms: Ints,
        has_timestamp: Bools,
        stamped: Bools,
    ) -> None:
        """Adds the records that follow."""
        self.without += int(len(offsets) - has_timestamp.sum())
        self.stamped += int(stamped.sum())
        offsets, stamps = offsets[has_timestamp], timestamp_ms[has_timestamp]
        odd = are_odd(stamps, append_time_ms[has_timestamp], self._now_ms)
        if odd.any():
            first = int(odd.argmax())
            self.first_odd = self.first_odd or (int(offsets[first]), int(stamps[first]))
            self.odd += int(odd.sum())
        self._all.add(offsets, stamps)
        self._plausible.add(offsets[~odd], stamps[~odd])

    @property
    def _counted(self) -> _Seen:
        return self._all if self._plausible.next_ms is None else self._plausible

    @property
    def next_ms(self) -> int | None:
        """The time of the first record that has one; None if none has."""
        return self._counted.next_ms

    @property
    def next_offset(self) -> int | None:
        """The offset of that record."""
        return self._counted.next_offset

    @property
    def are_all_odd(self) -> bool:
        """Whether there are times, and none of them can be right."""
        return self.odd > 0 and self._plausible.next_ms is None

    @property
    def step_back_ms(self) -> int:
        """How much older the oldest unread record is than the next one, in ms."""
        seen = self._counted
        if seen.next_ms is None or seen.least_ms is None:
            return 0
        return seen.next_ms - seen.least_ms


def margin_of(longest_ms: int, shortest_ms: int) -> int:
    """Returns the margin for latencies (append minus event time) between these two.

    An unread record u was appended no earlier than the next one n. So time(n) - time(u) is at most
    latency(u) - latency(n). That is at most the longest latency, or more if clocks run ahead and a
    latency is negative.
    """
    return max(0, longest_ms) - min(0, shortest_ms)


def search_time(next_ms: int, margin_ms: int) -> int:
    """Returns the time to search for; it is never one of the codes of ListOffsets below 0."""
    wanted = max(FIRST_MS, next_ms - margin_ms)
    return FIRST_SPECIAL - 1 if FIRST_SPECIAL <= wanted <= -1 else wanted


# --- proofs --------------------------------------------------------------------------------------


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
        proof.lost_from = _least(proof.lost_from, places[is_lost])
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


def _least(known: int | None, offsets: Ints) -> int | None:
    if not len(offsets):
        return known
    found = int(offsets.min())
    return found if known is None else min(known, found)


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
            offset = self._offsets[record]
            first = self._found.first_lost
            self._found.first_lost = offset if first is None else min(first, offset)

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
