"""Brokers that are paused, that lose a directory, and whose disks fail or are full."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from uuid import UUID

from broker.cluster.directories import Directories
from broker.cluster.disks import Disks
from broker.metadata.broker_records import OfflineRecord
from broker.pools import Pools
from config import TopicConfig
from storage.directory.registration_file import read_state
from storage.directory.store import LogStore
from tests.broker import asking
from tests.broker.subject import eventually

LONG_MS = 60_000  # a lease that no test outlives
SHORT_MS = 600
SOON_S = 10


def leader(image, partition=0):
    return image.topics["t"].assignments[partition].leader


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
    assert eventually(lambda: brokers[1].lines("session lost"))
    assert not brokers[2].lines("session lost")


def test_a_broker_whose_directory_was_emptied_starts_unclean_and_leads_nothing_for_it(brokers):
    brokers.start(1, 2, settings={"broker.session.timeout.ms": LONG_MS})
    brokers.add_topic("t", [1, 2])
    brokers[1].kill()
    brokers.eventually(lambda image: leader(image) == 2, SOON_S)
    shutil.rmtree(brokers[1].log_dir)
    brokers[1].restart()
    image = brokers.image()
    assert not image.registrations[1].record.is_clean
    assert leader(image) == 2
    (line,) = brokers[1].lines("log directories are missing")
    assert "missing=1" in line
    assert "missing_logs=t-0" in line


def test_an_emptied_directory_is_not_elected_though_nobody_else_is_there(brokers):
    """Its broker has left ISR and ELR before it registers; who has everything comes back first."""
    brokers.start(1, 2, settings={"broker.session.timeout.ms": LONG_MS})
    brokers.add_topic("t", [1, 2])
    brokers[1].kill()
    brokers.eventually(lambda image: leader(image) == 2, SOON_S)
    brokers[2].kill()
    shutil.rmtree(brokers[1].log_dir)
    brokers[1].restart()
    brokers.eventually(lambda image: leader(image) == -1, SOON_S)
    brokers[2].restart()
    brokers.eventually(lambda image: leader(image) == 2, SOON_S)


def test_a_log_whose_sync_fails_is_led_by_another_broker(brokers):
    settings = {"broker.session.timeout.ms": LONG_MS}
    brokers.start(1, 2, settings=settings, faults=True)
    topic = brokers.add_topic("t", [1, 2], [1, 2], configs={"flush.messages": "1"})
    brokers.eventually(lambda _: brokers[1].log_dir.joinpath("t-0").exists())
    brokers[1].faults.add(storage="sync", error="EIO", topic="t", partition=0)
    with brokers[1].connect() as connection:
        assert asking.produce(connection, "t", asking.batch_of("b"))["error_code"] != 0
    image = brokers.eventually(lambda image: image if leader(image) == 2 else None, SOON_S)
    assert leader(image, 1) == 1
    (directory,) = image.registrations[1].record.directories
    assert image.offline[1].record == ((directory,), {topic.topic_id: (0,)}, {})
    eventually(lambda: read_state(brokers[1].log_dir).has_failed)

    brokers[1].kill()
    brokers[1].restart()
    image = brokers.image()
    assert not image.registrations[1].record.is_clean
    assert not image.offline
    assert not read_state(brokers[1].log_dir).has_failed


def test_a_full_disk_is_written_to_by_no_leader(brokers):
    settings = {"broker.session.timeout.ms": LONG_MS}
    brokers.start(1, 2, settings=settings, faults=True)
    topic = brokers.add_topic("t", [1, 2])
    brokers.eventually(lambda _: brokers[1].log_dir.joinpath("t-0").exists())
    brokers[1].faults.add(storage="write", error="ENOSPC", topic="t", partition=0)
    with brokers[1].connect() as connection:
        assert asking.produce(connection, "t", asking.batch_of("b"))["error_code"] != 0
    image = brokers.eventually(lambda image: image if leader(image) == 2 else None, SOON_S)
    assert image.offline[1].record == ((), {}, {topic.topic_id: (0,)})
    assert not read_state(brokers[1].log_dir).has_failed
    brokers[1].faults.clear()  # a log that cannot be closed is no end in order


async def test_a_full_disk_is_looked_at_again_after_a_while(tmp_path):
    """The disk of this test has room at once; what says otherwise is one append that found none."""
    topic_id = UUID(int=9)
    store = LogStore([tmp_path], default_config=TopicConfig())
    store.open(0)
    pools = Pools([tmp_path])
    node = SimpleNamespace(
        store=store,
        pools=pools,
        metadata=SimpleNamespace(
            image=SimpleNamespace(topics={"t": SimpleNamespace(topic_id=topic_id)})
        ),
    )
    try:
        partition = store.create_partition("t", topic_id, 0, store.default_config, 0)
        disks = Disks(node, Directories([tmp_path], "boot", "c", 1))
        assert not await disks.look(0)
        partition.state.is_full = True
        assert await disks.look(1_000)
        assert disks.offline == OfflineRecord(full={topic_id: (0,)})
        assert not await disks.look(10_999)
        assert await disks.look(11_000)
        assert disks.offline == OfflineRecord()
        assert not partition.is_full
        assert not await disks.look(12_000)
    finally:
        pools.stop()
        store.close()
