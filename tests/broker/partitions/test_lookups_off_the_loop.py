"""The event loop walks no log for a lookup by time: not below zero, not in an adopted log, not for HTTP.

The disk counts what the thread of the loop reads from `.log` files while clients look up, on both sides of
1970. Injected: lookups that block.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.inside import Inside
from tidelog.broker.clock import ManualClock
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.log.reader import Reader

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

MOST = 64 * 1024 + 24 * 1024  # what a lookup may read there, and the windows in which it is read
LARGEST = -3


class Counted(files.System):
    """Counts the bytes of logs that the thread of a loop reads."""

    loop_thread = None
    bytes = 0

    def sync(self, number):
        pass

    def read(self, number, size, position):
        data = super().read(number, size, position)
        if threading.get_ident() == self.loop_thread:
            is_log = os.readlink(f"/proc/self/fd/{number}").endswith(".log")
            self.bytes += len(data) if is_log else 0
        return data


@contextmanager
def serving(directory):
    """A broker, and the disk that counts what its loop reads."""
    disk = Counted()
    before = files.use(disk)
    try:
        with Inside(directory, ManualClock(1_000_000)) as broker:
            disk.loop_thread = broker.call(threading.get_ident)
            yield broker, disk
    finally:
        files.use(before)


@pytest.fixture(scope="module")
def first_life(tmp_path_factory):
    """A directory with two sealed segments and an active one, a record a batch; and the times."""
    directory = tmp_path_factory.mktemp("first-life")
    chance, times = random.Random(5), []
    with serving(directory) as (broker, disk):
        with broker.connect() as connection:
            asking.create(connection, "times", **{"segment.bytes": "400000"})
        partition = broker.node.store.partition("times", 0)
        for i in range(-4000, 4000):
            times.append(10 * i + chance.randint(-500, 500))
            data = build([Record(0, times[-1], b"k", b"v" * 60, ())])
            partition.append(data, now_ms=1_000_000, produce_version=9)
        look_up(broker, disk, times)
    return directory, times


@pytest.fixture
def left(first_life, tmp_path):
    """The same, in a directory of the test's own."""
    directory, times = first_life
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    return tmp_path, times


def look_up(broker, disk, times):
    most = 0
    with broker.connect() as connection:
        for timestamp in (*range(-39_000, 40_000, 3000), -7, LARGEST):
            disk.bytes = 0
            found = asking.list_offset(connection, "times", timestamp)
            wanted = max(times) if timestamp == LARGEST else timestamp
            assert found["offset"] == next(o for o, time in enumerate(times) if time >= wanted)
            most = max(most, disk.bytes)
    assert most <= MOST, "the loop has walked"


@pytest.mark.parametrize("lost", ["", "*.negativetimes", "*.*index", "partition.times"])
def test_the_loop_reads_little(left, lost):
    directory, times = left
    for path in (directory / "times-0").glob(lost) if lost else ():
        path.unlink()
    with serving(directory) as (broker, disk):
        look_up(broker, disk, times)
        look_up(broker, disk, times)


def test_over_http_the_loop_reads_nothing(left):
    directory, _ = left
    (directory / "times-0" / "partition.times").unlink()
    with serving(directory) as (broker, disk):
        disk.bytes = 0
        for question in ("at=-3", "at=-20000", "appended-at=5", "at=-9&capped=true", "at=20000"):
            assert broker.page(f"/v1/topics/times/offsets?{question}")[0] == 200
        assert disk.bytes == 0


def test_a_lookup_that_blocks_is_noticed(left, monkeypatch):
    directory, times = left
    (directory / "times-0" / "partition.times").unlink()
    monkeypatch.setattr(Reader, "_check_cached", lambda *_: None)
    with serving(directory) as (broker, disk), pytest.raises(AssertionError, match="walked"):
        look_up(broker, disk, times)
