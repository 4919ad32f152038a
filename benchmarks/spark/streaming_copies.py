"""The topic that `streaming.py` copies, and the exact comparison of a copy with it.

Each value begins with the number of its record in its partition. So a copy shows not only where it
differs, but which records are lost, doubled, out of order or have another time. Of a partition only
the times and a counter for each record are in memory; the records are compared batch by batch.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client import Client
from tidelog.pipeline.source.access import plan, read
from tidelog.pipeline.source.reading import RECORDS, TIMES, ReadOptions
from tidelog.pipeline.source.splits import LOG_END, Selection
from tidelog.protocol.records.batch import Record, build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.pipeline.source.columns import Columns

PARTITIONS = 4
PER_BATCH = 500
VALUE = 100
DIGITS = 12
NOW_MS = 1_700_000_000_000
FAR_MS = 10**14  # some 3,000 years


class Found(NamedTuple):
    """What a copy is, in records; `differing` counts all positions that are not equal."""

    records: int
    lost: int
    doubled: int
    reordered: int
    wrong_times: int
    differing: int


def time_ms(chance: random.Random, number: int) -> int:
    """Returns a record's time: most near the present and out of order, some far from it or none."""
    if number % 500 == 0:
        return -1
    if number % 10 == 0:
        return chance.randrange(-FAR_MS, FAR_MS)
    return NOW_MS + number + chance.randrange(-60_000, 60_000)


def fill(bootstrap: str, topic: str, count: int, seed: int) -> None:
    """Produces `count` records; every seventh has headers, every eleventh has no key."""
    chance = random.Random(seed)
    with Client(bootstrap) as client:
        client.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        for first in range(0, count // PARTITIONS, PER_BATCH):
            for partition in range(PARTITIONS):
                text = chance.randbytes((VALUE - DIGITS) // 2 * PER_BATCH).hex().encode()
                width = VALUE - DIGITS
                records = [
                    Record(
                        at,
                        time_ms(chance, first + at),
                        None if (first + at) % 11 == 0 else b"key-%06d" % ((first + at) % 99_991),
                        b"%0*d" % (DIGITS, first + at) + text[at * width : (at + 1) * width],
                        ((b"number", b"%d" % at), (b"empty", None)) if at % 7 == 0 else (),
                    )
                    for at in range(PER_BATCH)
                ]
                client.produce(topic, partition, build(records))


def _columns(log_dir: Path, topic: str, partition: int, depth: int) -> Iterator[Columns]:
    wanted = frozenset({(topic, partition)})
    selection = Selection(topics=(topic,), upto=LOG_END, assigned=wanted)
    splits = plan(selection, logs=[str(log_dir)])
    for split in sorted(splits, key=lambda one: one.start_offset):
        yield from read(split, ReadOptions(depth=depth))


def _tables(log_dir: Path, topic: str, partition: int) -> Iterator[pa.Table]:
    for one in _columns(log_dir, topic, partition, RECORDS):
        given = (one.offset, one.timestamp_ms, one.key, one.value, one.headers)
        names = ("offset", "timestamp_ms", "key", "value", "headers")
        yield pa.table(dict(zip(names, given, strict=True)))


def _side_by_side(
    left: Iterator[pa.Table], right: Iterator[pa.Table]
) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
    """Yields pieces of equal length; None beside what only one of them has."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        length = min(len(table) for table in (one, other) if table is not None)
        yield (
            None if one is None else one.slice(0, length),
            None if other is None else other.slice(0, length),
        )
        if one is not None:
            one = one.slice(length) if len(one) > length else next(left, None)
        if other is not None:
            other = other.slice(length) if len(other) > length else next(right, None)


def _differing(one: pa.Table | None, other: pa.Table | None) -> int:
    if one is None or other is None:
        return len(other if one is None else one)
    if one.equals(other):
        return 0
    return sum(a != b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True))


class _Arrivals:
    """Counts the records of one partition by their numbers, in the order of the copy."""

    def __init__(self, times: np.ndarray) -> None:
        self._times = times
        self._seen = np.zeros(len(times), np.int64)
        self._largest = -1
        self.records = self.reordered = self.wrong_times = 0

    def add(self, table: pa.Table) -> None:
        """Adds the next records. Raises ArrowInvalid for a value that has no number."""
        start = pc.binary_slice(table["value"], 0, DIGITS)
        numbers = start.cast(pa.string()).cast(pa.int64()).to_numpy()
        times = table["timestamp_ms"].to_numpy()
        self.records += len(numbers)
        self.wrong_times += int((self._times[numbers] != times).sum())
        unique, places = np.unique(numbers, return_index=True)
        firsts = numbers[np.sort(places[self._seen[unique] == 0])]
        np.add.at(self._seen, numbers, 1)
        before = np.maximum.accumulate(np.concatenate(([self._largest], firsts)))
        self.reordered += int((firsts < before[:-1]).sum())
        self._largest = int(before[-1])

    @property
    def lost(self) -> int:
        """How many have not arrived."""
        return int((self._seen == 0).sum())

    @property
    def doubled(self) -> int:
        """How many have arrived again."""
        return int((self._seen[self._seen > 1] - 1).sum())


def compare(log_dir: Path, topic: str, copy: str) -> Found:
    """Compares offset, time, key, value and headers of every record of both topics."""
    total = Found(0, 0, 0, 0, 0, 0)
    for partition in range(PARTITIONS):
        times = [one.timestamp_ms for one in _columns(log_dir, topic, partition, TIMES)]
        arrivals, differing = _Arrivals(np.concatenate(times)), 0
        pieces = (_tables(log_dir, name, partition) for name in (topic, copy))
        for original, copied in _side_by_side(*pieces):
            differing += _differing(original, copied)
            if copied is not None:
                arrivals.add(copied)
        found = Found(
            arrivals.records,
            arrivals.lost,
            arrivals.doubled,
            arrivals.reordered,
            arrivals.wrong_times,
            differing,
        )
        total = Found(*map(sum, zip(total, found, strict=True)))
    return total
