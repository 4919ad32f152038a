"""The event loop walks no log for a lookup by time: not below zero, not in an adopted log, not for HTTP.

A node with a real listener runs on the loop of the test. The disk counts what the loop's own thread
reads from `.log` files while clients look up, on both sides of 1970. Planted: lookups that block.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.partitions.test_slow_disk import PATIENCE_S, Serving, _in_thread
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.log.reader import Reader

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

MOST = 64 * 1024 + 24 * 1024  # what a lookup may read there, and the windows in which it is read
LARGEST = -3


class Counted(files.System):
    """Counts the bytes of logs that the thread which made it reads."""

    def __init__(self):
        self.loop_thread = threading.get_ident()
        self.bytes = 0

    def go(self):
        pass

    def sync(self, number):
        pass

    def read(self, number, size, position):
        data = super().read(number, size, position)
        is_log = os.readlink(f"/proc/self/fd/{number}").endswith(".log")
        if is_log and threading.get_ident() == self.loop_thread:
            self.bytes += len(data)
        return data


@pytest.fixture
def disk():
    counted = Counted()
    before = files.use(counted)
    yield counted
    files.use(before)


def fill(partition):
    """Two sealed segments and an active one, a record a batch, from negative times to positive ones."""
    chance, times = random.Random(5), []
    for i in range(-4000, 4000):
        times.append(10 * i + chance.randint(-500, 500))
        data = build([Record(0, times[-1], b"k", b"v" * 60, ())])
        partition.append(data, now_ms=1_000_000, produce_version=9)
    return times


async def first_life(directory, disk):
    async with Serving(directory, disk).running() as serving:
        await serving.ask(asking.create, "times", **{"segment.bytes": "400000"})
        times = await _in_thread(lambda: fill(serving.store.partition("times", 0)))
        await look_up(serving, disk, times)
    return times


async def look_up(serving, disk, times):
    most = 0
    for timestamp in (*range(-39_000, 40_000, 3000), -7, LARGEST):
        disk.bytes = 0
        found = await serving.ask(asking.list_offset, "times", timestamp)
        wanted = max(times) if timestamp == LARGEST else timestamp
        assert found["offset"] == next(o for o, time in enumerate(times) if time >= wanted)
        most = max(most, disk.bytes)
    assert most <= MOST, "the loop has walked"


def over_http(serving, question):
    request = f"GET /v1/topics/times/offsets?{question} HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", serving.metrics_port), PATIENCE_S) as peer:
        peer.sendall(request.encode() + b"Connection: close\r\n\r\n")
        answer = b"".join(iter(lambda: peer.recv(65_536), b""))
    assert b" 200 " in answer.partition(b"\r\n")[0], answer


@pytest.mark.parametrize("lost", ["", "*.negativetimes", "*.*index", "partition.times"])
async def test_the_loop_reads_little(tmp_path, disk, lost):
    times = await first_life(tmp_path, disk)
    for path in (tmp_path / "times-0").glob(lost) if lost else ():
        path.unlink()
    async with Serving(tmp_path, disk).running() as serving:
        await look_up(serving, disk, times)
        await look_up(serving, disk, times)


async def test_over_http_the_loop_reads_nothing(tmp_path, disk):
    await first_life(tmp_path, disk)
    (tmp_path / "times-0" / "partition.times").unlink()
    async with Serving(tmp_path, disk).running() as serving:
        disk.bytes = 0
        for question in ("at=-3", "at=-20000", "appended-at=5", "at=-9&capped=true", "at=20000"):
            await _in_thread(lambda question=question: over_http(serving, question))
        assert disk.bytes == 0


async def test_a_lookup_that_blocks_is_noticed(tmp_path, disk, monkeypatch):
    times = await first_life(tmp_path, disk)
    (tmp_path / "times-0" / "partition.times").unlink()
    monkeypatch.setattr(Reader, "_check_cached", lambda *_: None)
    with pytest.raises(AssertionError, match="walked"):
        async with Serving(tmp_path, disk).running() as serving:
            await look_up(serving, disk, times)
