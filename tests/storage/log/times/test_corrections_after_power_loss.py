"""Power goes at any call of an append that corrects a clock: no record counts as of the wrong time.

What a clock stamped years ahead counts as written by now, at the latest, whatever was durable. What
is appended afterwards keeps its own time.
"""

from __future__ import annotations

import contextlib
import random
import uuid

import pytest

from tests.simulation.power_loss import Disk, PowerLoss
from tests.storage.conftest import kill
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.times import judging
from tidelog.storage.time.corrections import judged

WRONG_MS, RIGHT_MS = 10**12, 1_000_000
CONFIG = TopicConfig(segment_bytes=1 << 20, flush_messages=1)

pytestmark = pytest.mark.usefixtures("use")


def opened(path, boot, now):
    store = LogStore([path], default_config=CONFIG, boot_id=boot)
    store.open(now)
    return store, store.partition("t", 0)


def append(partition, now):
    data = build([Record(0, 5, b"k", b"v", ())])
    return partition.append(data, now_ms=now, produce_version=9)


def prepared(path):
    """A closed log on a disk of its own."""
    path.mkdir()
    store = LogStore([path], default_config=CONFIG, boot_id="first")
    store.open(0)
    store.create_partition("t", uuid.UUID(int=7), 0, CONFIG, 0)
    store.close()
    disk = Disk(path)
    files.use(disk)
    return disk


@pytest.mark.parametrize("seed", range(40))
def test_power_goes_while_a_clock_is_corrected(tmp_path, seed):
    pick = random.Random(seed)
    disk = prepared(tmp_path / "0")
    store, partition = opened(tmp_path / "0", "second", 500)
    for _ in range(pick.randint(1, 3)):
        append(partition, WRONG_MS)
        pick.choice([partition.flush, partition.commit, _nothing])()
    disk.fails_at = disk.calls + pick.randint(1, 25)
    with contextlib.suppress(PowerLoss):
        for number in range(3):
            partition.append_clock.note_step_back(RIGHT_MS + number)
            append(partition, RIGHT_MS + number)
            pick.choice([partition.flush, partition.commit, _nothing])()
    disk.is_off = True
    kill(store)
    disk.lose_power(tmp_path / "1", pick)
    files.use(Disk(tmp_path / "1"))
    now = RIGHT_MS + 100
    store, partition = opened(tmp_path / "1", "third", now)
    for _ in range(2):
        _check(partition, now)
        end = partition.log_end_offset
        append(partition, now + 1)
        assert judged(partition.state.timing.corrections, end, now + 1) == now + 1
        assert partition.reader.append_time_of(end) == now + 1
        kill(store)
        store, partition = opened(tmp_path / "1", "third", now + 1)
        now += 1
    _check(partition, now)
    kill(store)


def _nothing():
    """Nothing is made durable."""


def _check(partition, now):
    corrections, end = partition.state.timing.corrections, partition.log_end_offset
    assert all(each.end_offset <= end for each in corrections)
    for offset in range(partition.log_start_offset, end):
        append_time = partition.reader.append_time_of(offset)
        if append_time is not None:
            assert judged(corrections, offset, append_time) <= now
            assert (
                append_time == WRONG_MS or judged(corrections, offset, append_time) == append_time
            )
    for segment in partition.segments:
        last = judging.judged_times_of(partition.state, segment).last_append
        assert last is None or last <= now
