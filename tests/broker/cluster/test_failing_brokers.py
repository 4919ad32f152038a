"""Brokers that are paused, that lose a directory, and whose disks fail, are full or slow."""

from __future__ import annotations

import asyncio
import shutil
import threading
from types import SimpleNamespace
from uuid import UUID

import pytest

from tests.broker import asking
from tests.broker.subject import eventually
from tidelog.broker.lifecycle.directories import Directories
from tidelog.broker.logs.disks import Disks
from tidelog.broker.logs.slow_disks import SlowDisks
from tidelog.broker.metadata.brokers.records import OfflineRecord
from tidelog.broker.pools import Pools
from tidelog.config import TopicConfig
from tidelog.storage import files
from tidelog.storage.directory.registration_file import read_state
from tidelog.storage.directory.store import LogStore
from tidelog.storage.files import System

LONG = {"broker.session.timeout.ms": 60_000}  # a lease that no test outlives
SHORT_MS = 4_000  # a busy machine holds up the broker that is well for less
SOON_S = 20
KAFKA_STORAGE_ERROR = 56


def leader(image, partition=0):
    return image.topics["t"].assignments[partition].leader


@pytest.mark.slow
def test_a_broker_paused_past_its_lease_steps_down_and_registers_anew_without_a_fence(brokers):
    brokers.start(1, 2, settings={"broker.session.timeout.ms": SHORT_MS})
    brokers.add_topic("t", [1, 2], [2, 1])
    before = brokers.image()
    brokers[1].pause()
    brokers.eventually(lambda image: leader(image) == 2 and 1 not in image.brokers, SOON_S)
    brokers[1].resume()
    image = brokers.eventually(lambda image: image if 1 in image.brokers else None, SOON_S)
    assert image.brokers[1].epoch > before.brokers[1].epoch
    assert not image.brokers[1].record.is_fenced
    assert image.registrations[1].record.is_clean
    assert image.registrations[1].record.incarnation != (before.registrations[1].record.incarnation)
    assert leader(image) == 2
    assert eventually(lambda: brokers[1].lines("broker session lost"))
    assert not brokers[2].lines("broker session lost")


@pytest.mark.slow
def test_an_emptied_directory_is_not_elected_though_nobody_else_is_there(brokers):
    """Its broker has left ISR and ELR before it registers; who has everything comes back first."""
    brokers.start(1, 2, settings=LONG)
    brokers.add_topic("t", [1, 2])
    brokers[1].kill()
    brokers.eventually(lambda image: leader(image) == 2, SOON_S)
    brokers[2].kill()
    shutil.rmtree(brokers[1].log_dir)
    brokers[1].restart()
    assert not brokers.image().registrations[1].record.is_clean
    (line,) = brokers[1].lines("log directories missing or emptied", "missing=1")
    assert "missing_logs=t-0" in line
    brokers.eventually(lambda image: leader(image) == -1, SOON_S)
    brokers[2].restart()
    brokers.eventually(lambda image: leader(image) == 2, SOON_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("storage", "error", "is_full"),
    [("sync", "EIO", False), ("write", "EIO", False), ("write", "ENOSPC", True)],
)
def test_a_log_that_cannot_be_written_is_led_by_another_broker(brokers, storage, error, is_full):
    brokers.start(1, 2, settings=LONG, faults=True)
    replicas = [[1, 2]] * (1 if is_full else 2)  # a full disk is that of all logs in its directory
    topic = brokers.add_topic("t", *replicas, configs={"flush.messages": "1"})
    brokers.eventually(lambda _: brokers[1].log_dir.joinpath("t-0").exists())
    brokers[1].faults.add(storage=storage, error=error, topic="t", partition=0)
    with brokers[1].connect() as connection:
        assert produced(connection, 0) != 0
    image = brokers.eventually(lambda image: image if leader(image) == 2 else None, SOON_S)
    lost = {topic.topic_id: (0,)}
    if is_full:
        assert image.offline[1].record == ((), {}, lost, {})
        assert not read_state(brokers[1].log_dir).has_failed
        brokers[1].faults.clear()  # a log that cannot be closed is no end in order
        return
    assert leader(image, 1) == 1
    assert image.offline[1].record == (image.registrations[1].record.directories, lost, {}, {})
    eventually(lambda: read_state(brokers[1].log_dir).has_failed)

    brokers[1].kill()
    brokers[1].restart()
    image = brokers.image()
    assert not image.registrations[1].record.is_clean
    assert not image.offline
    assert not read_state(brokers[1].log_dir).has_failed


@pytest.mark.slow
def test_a_log_with_one_replica_whose_write_failed_is_there_again_after_a_restart(brokers):
    """Kafka takes the whole log directory offline; here the other logs are served on."""
    brokers.start(1, 2, settings=LONG, faults=True)
    brokers.add_topic("t", [1], [1])
    with brokers[1].connect() as connection:
        for partition in (0, 1):
            eventually(lambda at=partition: produced(connection, at) == 0)
        with brokers[1].faults.add(storage="write", error="EIO", topic="t", partition=0):
            assert produced(connection, 0) == KAFKA_STORAGE_ERROR
        brokers.eventually(lambda image: leader(image) == -1, SOON_S)
        assert produced(connection, 0) != 0
        assert fetched(connection, 0) != 0
        assert produced(connection, 1) == fetched(connection, 1) == 0
    brokers[1].kill()
    brokers[1].restart()
    brokers.eventually(lambda image: leader(image) == 1, SOON_S)
    with brokers[1].connect() as connection:
        eventually(lambda: fetched(connection, 0) == 0)


@pytest.mark.slow
def test_one_read_that_fails_is_an_error_of_its_request_alone(brokers):
    """Kafka takes the log directory offline for it, too."""
    brokers.start(1, 2, settings=LONG, faults=True)
    brokers.add_topic("t", [1])
    with brokers[1].connect() as connection:
        eventually(lambda: produced(connection, 0) == 0)
        with brokers[1].faults.add(storage="read", error="EIO", topic="t", partition=0):
            assert fetched(connection, 0) == KAFKA_STORAGE_ERROR
        assert fetched(connection, 0) == 0
        assert produced(connection, 0) == 0
    assert leader(brokers.image()) == 1
    assert not brokers.image().offline


def produced(connection, partition):
    return asking.produce(connection, "t", asking.batch_of("b"), partition=partition)["error_code"]


def fetched(connection, partition):
    return asking.fetch(connection, "t", 0, partition=partition)["error_code"]


@pytest.mark.slow
def test_a_slow_disk_moves_what_its_broker_leads(brokers):
    settings = {**LONG, "log.dir.slow.ms": 1_500}
    brokers.start(1, 2, settings=settings, faults=True)
    topic = brokers.add_topic("t", [1, 2], [2, 1])
    brokers.eventually(lambda _: brokers[1].log_dir.joinpath("t-0").exists())
    log_dir = str(brokers[1].log_dir)
    brokers[1].faults.add(storage="sync", delay="1h", log_dir=log_dir)
    image = brokers.eventually(lambda image: image if leader(image) == 2 else None, SOON_S)
    assert leader(image, 1) == 2
    assert set(image.topics["t"].assignments[0].isr) == {1, 2}
    assert image.offline[1].record.slow == {topic.topic_id: (0, 1)}
    assert not read_state(brokers[1].log_dir).has_failed
    brokers[1].faults.clear()
    brokers.eventually(lambda image: not image.offline)


class _Slow(System):
    """A disk whose syncs take as long as a test says, by the clock of the test."""

    def __init__(self):
        self.now_ms, self.takes_ms = 0, 0

    def sync_data(self, number):
        self.now_ms += self.takes_ms
        super().sync_data(number)


class _Probes:
    """The pool that probes one directory; `last` is the probe that was begun last."""

    def __init__(self, pools, path):
        self.pool = pools.syncs.probe_of(path)

    def probe_of(self, _):
        return self

    def submit(self, *work):
        self.last = self.pool.submit(*work)
        return self.last


async def test_a_disk_is_slow_after_one_slow_probe_and_fast_after_several_fast_ones(tmp_path):
    pools, system = Pools([tmp_path]), _Slow()
    before = files.use(system)
    probes = _Probes(pools, tmp_path)
    disks = SlowDisks(probes, [tmp_path], 900, lambda: system.now_ms)

    async def look(next_takes_ms):
        """Judges the last probe, and has the next one; returns which directories are slow."""
        system.takes_ms, begun_ms = next_takes_ms, system.now_ms
        disks.check()
        await probes.last
        system.now_ms = begun_ms + max(next_takes_ms, 300)
        return set(disks.slow)

    try:
        assert await look(900) == set()
        assert await look(901) == set(), "of 900 ms"
        assert await look(450) == {tmp_path}, "of 901 ms"
        system.now_ms += 10_000
        assert await look(450) == {tmp_path}
        assert await look(451) == {tmp_path}
        assert await look(1) == {tmp_path}, "of 451 ms: it begins to count anew"
        assert [await look(1) for _ in range(3)] == [{tmp_path}, {tmp_path}, set()]
    finally:
        files.use(before)
        pools.stop()


async def test_a_disk_is_not_slow_because_its_broker_has_much_to_sync(tmp_path):
    """As in an election of thousands of partitions: each new role waits for the disk."""
    pools, system, end = Pools([tmp_path]), _Slow(), threading.Event()
    before = files.use(system)
    probes = _Probes(pools, tmp_path)
    disks = SlowDisks(probes, [tmp_path], 900, lambda: system.now_ms)
    syncs = pools.syncs.of(SimpleNamespace(directory=tmp_path / "t-0"))
    work = [syncs.submit(end.wait, 60) for _ in range(100)]
    try:
        disks.check()
        await asyncio.wait_for(probes.last, 60)  # it does not wait for the work
        system.now_ms += 901
        disks.check()
        assert disks.slow == set()
    finally:
        end.set()
        await asyncio.gather(*work)
        pools.stop()
        files.use(before)


async def test_a_directory_that_has_vanished_is_noticed_though_nobody_writes_to_it(tmp_path):
    directory, away = tmp_path / "logs", tmp_path / "away"
    directory.mkdir()
    pools, now_ms = Pools([directory]), 0
    disks = SlowDisks(pools.syncs, [directory], 900, lambda: now_ms)

    async def looked(until):
        nonlocal now_ms
        async with asyncio.timeout(30):
            while not until():
                disks.check()
                await asyncio.sleep(0.01)
                now_ms += 300

    try:
        disks.check()
        directory.rename(away)
        await looked(lambda: disks.unwritable)
        assert disks.unwritable == {directory: "No such file or directory"}
        assert disks.slow == set()
        away.rename(directory)
        await looked(lambda: not disks.unwritable)
    finally:
        pools.stop()


async def test_a_full_disk_is_looked_at_again_after_a_while(tmp_path):
    """The disk of this test has room at once; what says otherwise is one append that found none."""
    topic_id = UUID(int=9)
    store = LogStore([tmp_path], default_config=TopicConfig())
    store.open(0)
    pools = Pools([tmp_path])
    node = SimpleNamespace(
        store=store,
        pools=pools,
        config=SimpleNamespace(cluster=SimpleNamespace(log_dir_slow_ms=0)),
        metadata=SimpleNamespace(
            image=SimpleNamespace(topics={"t": SimpleNamespace(topic_id=topic_id)})
        ),
    )
    try:
        partition = store.create_partition("t", topic_id, 0, store.default_config, 0)
        disks = Disks(node, Directories([tmp_path], "boot", "c", 1, "sqlite:a"), lambda: 0)
        assert not await disks.check(0)
        partition.state.is_full = True
        assert await disks.check(1_000)
        assert disks.offline == OfflineRecord(full={topic_id: (0,)})
        assert not await disks.check(10_999)
        assert await disks.check(11_000)
        assert disks.offline == OfflineRecord()
        assert not partition.is_full
        assert not await disks.check(12_000)
    finally:
        pools.stop()
        store.close()
