"""A partition that is deleted, and another made of its name, while somebody still works on the first."""

import contextlib
import random
import shutil
import threading

import pytest

from tests.simulation import power_loss
from tests.simulation.disks import Disk
from tests.storage.conftest import TOPIC_ID, kill
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import UnknownTopicOrPartition
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.directory.store import LogStore


def contents_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(
    "work",
    [
        lambda partition: partition.flush(),
        lambda partition: partition.commit(),
        lambda partition: partition.retainer.apply_retention(10**12),
        lambda partition: partition.retainer.delete_records_before(1),
        lambda partition: partition.append_clock.reset(0),
    ],
    ids=["flush", "commit", "retention", "delete records", "append time"],
)
@pytest.mark.parametrize("flushed", [True, False])
def test_who_comes_late_does_not_touch_the_new_log(make_log, work, flushed):
    log = make_log(flush_messages=1, segment_bytes=200, retention_ms=1000).create()
    for now in range(5):
        log.append([now], now=now)
    log.partition.commit()
    log.append([6], now=6)
    if flushed:
        log.partition.flush()
    old = log.partition
    log.store.delete_partition("t", 0)
    log.partition = log.store.create_partition("t", TOPIC_ID, 0, log.config, 0)
    for now in range(3):
        log.append([now], now=now)
    log.partition.commit()
    before = contents_of(log.directory)
    with pytest.raises(UnknownTopicOrPartition):
        work(old)
    assert contents_of(log.directory) == before


def test_a_deletion_waits_for_what_is_under_way(make_log):
    disk = Disk()
    before = files.use(disk)
    try:
        log = make_log(flush_messages=1).create()
        log.append([1])
        partition = log.partition
        disk.may_sync.clear()
        disk.is_syncing.clear()
        reached = []
        flushing = threading.Thread(target=lambda: reached.append(partition.flush()))
        flushing.start()
        assert disk.is_syncing.wait(60)
        deleting = threading.Thread(target=lambda: log.store.delete_partition("t", 0))
        deleting.start()
        deleting.join(0.2)  # it would be done by then, if it did not wait
        assert log.store.indexes("t"), "it is there as long as somebody works on it"
        disk.may_sync.set()
        flushing.join(60)
        deleting.join(60)
        assert reached == [1]
        assert not log.store.indexes("t")
    finally:
        disk.may_sync.set()
        files.use(before)


def test_a_checkpoint_says_nothing_of_the_old_log_under_the_name_of_the_new(log):
    """The old one is deleted, and the new one made, while the checkpoint goes over what is open."""

    class Changing(dict):
        def get(self, key, default=None):
            if not renewed:
                renewed.append(key)
                log.store.delete_partition("t", 0)
                log.store.create_partition("t", TOPIC_ID, 0, log.config, 0)
            return super().get(key, default)

    renewed = []
    log.append([1, 2, 3])
    log.store.checkpoint()
    checkpoint = log.path / "recovery-point-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 3\n"
    # The change has to come within the checkpoint: there is no public place for that.
    log.store._table.opened = Changing(log.store._table.opened)
    log.store._write_checkpoints()
    assert renewed
    assert checkpoint.read_text() == "0\n1\nt 0 0\n"


def test_no_power_loss_brings_a_deleted_topic_back_or_takes_one_that_was_committed(tmp_path, use):
    """Also where the power goes in the middle of the deletion of another topic."""

    def opened(directory, boot):
        store = LogStore([directory], default_config=TopicConfig(), boot_id=boot)
        store.open(0)
        return store

    for seed in range(30):
        root = tmp_path / f"disk {seed}"
        root.mkdir()
        disk = power_loss.Disk(root)
        use(disk)
        store = opened(root, "before")
        for topic in ("deleted", "going", "kept"):
            partition = store.create_partition(topic, TOPIC_ID, 0, TopicConfig(), 0)
            partition.append(build([Record(0, 5, b"k", b"v")]), now_ms=0, produce_version=9)
            partition.commit()
        store.delete_topic("deleted")
        disk.fails_at = disk.calls + 1 + seed % 15
        with contextlib.suppress(power_loss.PowerLoss):
            store.delete_topic("going")
        kill(store)
        disk.lose_power(tmp_path / "left", random.Random(seed))
        use(files.System())
        store = opened(tmp_path / "left", "after")
        left = {partition.topic: partition for partition in store.partitions()}
        assert left.keys() - {"going"} == {"kept"}
        assert (left["kept"].topic_id, left["kept"].log_end_offset) == (TOPIC_ID, 1)
        kill(store)
        shutil.rmtree(tmp_path / "left")
