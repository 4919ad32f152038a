"""Lookups of times before 1970 beside lookups of times after it, and how long they hold the loop.

    .venv/bin/python benchmarks/logs/lookups_below_zero.py                    10 M records
    .venv/bin/python benchmarks/logs/lookups_below_zero.py --records 1000000

The log has one record per millisecond, half of them before 1970, out of order by up to five
seconds, in batches of 40 to 100 records: once in segments of 16 MB, once in one of the default
1 GB. It is looked up warm, right after a start, and from a directory without the files that are
tidelog's own, as Apache Kafka leaves one. Every answer is checked against the times that were written.

One connection looks up. Another asks for the end of another topic, all the time; its longest wait is
the longest time for which the event loop served nobody, and includes what the machine did meanwhile.
It asks nothing of the log that is looked up, whose opening it would wait for. The CPU time of the
loop's thread during one lookup does not include what the machine did.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import forge
import loads
import prepared
import raw
from brokers import Tidelog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SIZES = {"16 MB segments": 16 << 20, "one segment": 1 << 30}
_PER_BATCH = (40, 100)
_DISORDER_MS = 5000
_LOWEST_TIME = -7  # the larger negative values are no times in ListOffsets
_ROW = "{:16} {:9} {:9}{:>9} us {:>9} us {:>9.2f} ms {:>9.2f} ms"


class Result(NamedTuple):
    """What lookups of one kind took."""

    took_us: list[float]
    held_ms: float  # the longest wait of the other connection
    loop_cpu_ms: float  # the most CPU time of the loop's thread in one lookup

    @property
    def median_us(self) -> float:
        """The median of the lookups."""
        return sorted(self.took_us)[len(self.took_us) // 2]


class Waits(threading.Thread):
    """Asks for the end of a log, again and again, and notes the longest wait."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(daemon=True)
        self._request = prepared.list_offsets_v7(topic, 0, -1)
        self._connection = raw.connect(port)
        self._is_done = threading.Event()
        self.longest_ms = 0.0
        raw.look_up(self._connection, self._request)  # the first one opens the log

    def run(self) -> None:
        """Asks until told to end."""
        with self._connection as connection:
            while not self._is_done.wait(0.0005):
                began = time.perf_counter()
                raw.look_up(connection, self._request)
                self.longest_ms = max(self.longest_ms, (time.perf_counter() - began) * 1e3)

    def end(self) -> float:
        """Returns the longest wait, in milliseconds."""
        self._is_done.set()
        self.join()
        return self.longest_ms


def _loop_cpu_ms(pid: int) -> float:
    """Returns the CPU time of a process's first thread, which runs the event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


class Topics(NamedTuple):
    """The names of the topics of a broker."""

    looked_up: str
    beside: str  # that the other connection asks about


class Log(NamedTuple):
    """A forged log, and for each offset the largest time up to it."""

    directory: Path
    first_ms: int
    reached: array[int]

    def expected(self, timestamp: int) -> int:
        """Returns the offset of the first record at or after a time, -1 if there is none."""
        low, high = 0, len(self.reached)
        while low < high:
            middle = (low + high) // 2
            if self.reached[middle] >= timestamp:
                high = middle
            else:
                low = middle + 1
        return low if low < len(self.reached) else -1


def _make(directory: Path, records: int, segment_bytes: int) -> Log:
    shape = forge.Shape(records, _PER_BATCH, 8, segment_bytes, _DISORDER_MS, -records // 2)
    reached, largest = array("q"), -(2**63)
    for at in forge.times(shape):
        largest = max(largest, at)
        reached.append(largest)
    return Log(forge.forge(directory, shape), shape.first_ms, reached)


def _measure(broker: Tidelog, topics: Topics, log: Log, wanted: Sequence[int]) -> Result:
    waits, took, most = Waits(broker.port, topics.beside), [], 0.0
    waits.start()
    with raw.connect(broker.port) as connection:
        for timestamp in wanted:
            request = prepared.list_offsets_v7(topics.looked_up, 0, timestamp)
            used = _loop_cpu_ms(broker.pid)
            began = time.perf_counter()
            offset, _ = raw.look_up(connection, request)
            took.append((time.perf_counter() - began) * 1e6)
            most = max(most, _loop_cpu_ms(broker.pid) - used)
            if offset != log.expected(timestamp):
                raise raw.RawError(f"{timestamp}: {offset}, not {log.expected(timestamp)}")
    return Result(took, waits.end(), most)


def _sides(log: Log, chance: random.Random, count: int) -> Iterator[tuple[str, list[int]]]:
    yield "above", [chance.randrange(-log.first_ms) for _ in range(count)]
    yield "below", [chance.randrange(log.first_ms, _LOWEST_TIME) for _ in range(count)]


def _install(broker: Tidelog, log: Log, *, ours: bool) -> Topics:
    broker.start()
    topic = loads.make_topic(broker, "below", 1, {"retention.ms": "-1"})
    topics = Topics(topic, loads.make_topic(broker, "beside"))
    broker.stop()
    forge.install(log.directory, broker.data, topic, len(log.reached), ours=ours)
    return topics


def _rows(work: Path, records: int, count: int) -> Iterator[tuple[str, str, dict[str, Result]]]:
    for name, segment_bytes in _SIZES.items():
        directory = work / name.replace(" ", "-")
        log = _make(directory / "forged", records, segment_bytes)
        chance = random.Random(records)
        for kind, ours, lookups in (
            ("first", True, 20),
            ("warm", True, count),
            ("adopted", False, 20),
        ):
            broker = Tidelog(directory / ("ours" if ours else "adopted"), 0)
            topics = _install(broker, log, ours=ours)
            broker.start()
            try:
                found = {}
                if kind == "warm":
                    for _, wanted in _sides(log, chance, 2000):
                        _measure(broker, topics, log, wanted)
                for side, wanted in _sides(log, chance, lookups):
                    found[side] = _measure(broker, topics, log, wanted)
            finally:
                broker.stop()
            yield name, kind, found


def main() -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--lookups", type=int, default=2000, help="warm lookups on each side")
    options = parser.parse_args()
    print(f"{options.records:,} records, lookups above and below zero, one at a time")
    print(f"{'':36}{'median':>12} {'longest':>12} {'held':>12} {'loop CPU':>12}  below/above")
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        for name, kind, found in _rows(Path(work), options.records, options.lookups):
            for side, result in found.items():
                line = _ROW.format(
                    name,
                    kind,
                    side,
                    round(result.median_us),
                    round(max(result.took_us)),
                    result.held_ms,
                    result.loop_cpu_ms,
                )
                ratio = found["below"].median_us / found["above"].median_us
                print(line + (f"  {ratio:.2f}" if side == "below" else ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
