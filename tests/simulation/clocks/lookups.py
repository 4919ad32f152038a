"""Lookups in a log whose times lie before 1970: they read as little as any other, and find the same.

The model is a list of times. What a lookup reads is counted where files are read.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.clocks.model import BrokenPromiseError
from tests.simulation.disks import Unsynced
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.log.partition import Partition

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 250
INTERVAL_BYTES = 1_024
VALUE_BYTES = 2_000
MOST_BYTES = 65_536  # read ahead included; the log has about 500,000


class Reads(Unsynced):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes = 0

    def read(self, number: int, size: int, position: int) -> bytes:
        data = super().read(number, size, position)
        self.bytes += len(data)
        return data


class LookupsWorld:
    """One log, and lookups by record time in it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = pick = random.Random(f"lookups {seed}")
        path.mkdir()
        self.path = path
        self.center = -pick.randint(10_000, 10**12)
        self.trace = [f"lookups around {self.center}"]
        self.times = [self.center + 10 * at + pick.randint(-40, 40) for at in range(BATCHES)]

    def live(self) -> None:
        """Appends a few hundred batches, then looks up times between theirs."""
        config = TopicConfig(index_interval_bytes=INTERVAL_BYTES, segment_bytes=1 << 30)
        partition = Partition(self.path, "t", 0, None, config, now_ms=10**6)
        before = files.use(reads := Reads())
        try:
            for time in self.times:
                data = build([Record(0, time, b"k", self.random.randbytes(VALUE_BYTES))])
                partition.append(data, now_ms=10**6, produce_version=9)
            for _ in range(4):
                self._look_up(partition, reads)
        finally:
            files.use(before)
            partition.close()

    def _look_up(self, partition: Partition, reads: Reads) -> None:
        target = self.random.choice(self.times[len(self.times) // 2 :])
        wanted = next(at for at, time in enumerate(self.times) if time >= target)
        reads.bytes = 0
        found = partition.reader.find_by_time(target, upper_offset=partition.log_end_offset)
        if found is None or found[0] != wanted:
            raise BrokenPromiseError(f"a lookup of {target} found {found}, not {wanted}")
        if reads.bytes > MOST_BYTES:
            raise BrokenPromiseError(f"a lookup of {target} read {reads.bytes} bytes")
