"""A stop of many partitions: few syncs, and nothing is lost at any moment of it."""

import errno
import os
import random
import uuid
from pathlib import Path

import pytest

from tests.simulation import disks
from tests.simulation.power_loss import Disk, PowerLoss
from tests.storage.conftest import kill
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import KafkaStorageError
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import file_systems, files
from tidelog.storage.directory import parallel
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log import lookup

CONFIG = TopicConfig()
ID = uuid.UUID(int=99)


def opened(path, boot_id="boot"):
    store = LogStore([path], default_config=CONFIG, boot_id=boot_id)
    store.open(0)
    return store


def append(store, now):
    for partition in store.partitions():
        partition.append(build([Record(0, now, None, b"x", ())]), now_ms=now, produce_version=9)


def filled(path, count):
    store = opened(path)
    for index in range(count):
        store.create_partition("t", ID, index, CONFIG, 0)
    append(store, 5)
    return store


class Counted(disks.Disk):
    """A disk that counts syncs of file systems apart, and may refuse them."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.of_file_systems = error, 0

    def sync_file_system(self, number):
        self.of_file_systems += 1
        if self.error is not None:
            raise OSError(self.error, "refused")


class Named(Counted):
    """A disk that knows the paths of the files that are synced."""

    def __init__(self, error=None):
        super().__init__(error)
        self.paths, self.synced = {}, []

    def open(self, path, flags):
        number = super().open(path, flags)
        self.paths[number] = path
        return number

    def _sync(self, number):
        self.synced.append(self.paths[number])


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_stop_of_many_partitions_syncs_two_file_systems_and_a_few_files(
    tmp_path, use, is_flushed
):
    disk = Counted()
    use(disk)
    store = filled(tmp_path, 2 * parallel._MANY)
    if is_flushed:
        store.checkpoint()
    disk.syncs = 0
    store.close()
    assert disk.of_file_systems == 2
    assert disk.syncs < 20, "the checkpoints and the mark of a clean stop, whatever the partitions"
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = opened(tmp_path)
    assert {partition.log_end_offset for partition in again.partitions()} == {1}
    assert {partition.last_append_time for partition in again.partitions()} == {5}
    again.close()


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EIO])
def test_each_file_is_synced_where_the_file_system_cannot_be(tmp_path, use, error):
    disk = Counted(error)
    use(disk)
    store = filled(tmp_path, parallel._MANY)
    disk.syncs = 0
    store.close()
    assert disk.syncs > 5 * parallel._MANY
    again = opened(tmp_path)
    assert {partition.log_end_offset for partition in again.partitions()} == {1}
    again.close()


def test_a_log_on_another_file_system_has_its_own_files_synced(tmp_path, use, monkeypatch):
    stat = Path.stat

    def stat_of_another(path, **how):
        mode, number, device, *more = found = stat(path, **how)
        is_other = path == tmp_path / "t-7"
        return os.stat_result((mode, number, device + 1, *more)) if is_other else found

    disk = Named()
    use(disk)
    store = filled(tmp_path, parallel._MANY)
    monkeypatch.setattr(Path, "stat", stat_of_another)
    disk.synced.clear()
    store.close()
    assert disk.of_file_systems == 2
    logs = [path.parent.name for path in disk.synced if path.parent.parent == tmp_path]
    assert set(logs) == {"t-7"}
    assert len(logs) > 5


def test_the_log_whose_sync_fails_is_named_and_the_stop_is_not_clean(tmp_path, use):
    class Failing(Named):
        """A disk that has lost the bytes of one log."""

        def _sync(self, number):
            if self.paths[number].parent.name == "t-7" and self.of_file_systems:
                raise OSError(errno.EIO, "Input/output error")

    disk = Failing(errno.EIO)
    use(disk)
    store = filled(tmp_path, parallel._MANY)
    with pytest.raises(KafkaStorageError, match=r"^t-7: "):
        store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_power_loss_in_the_middle_of_a_stop_loses_nothing_that_was_durable(
    tmp_path, use, monkeypatch, is_flushed
):
    monkeypatch.setattr(parallel, "_MANY", 1)

    def stopped(path, fails_at):
        """Fill two logs, and stop; return the disk, which has lost its power in that call."""
        path.mkdir()
        disk = Disk(path)
        use(disk)
        store = filled(path, 2)
        store.checkpoint()
        if not is_flushed:
            append(store, 6)
        disk.calls, disk.fails_at = 0, fails_at
        try:
            store.close()
        except PowerLoss:
            kill(store)
        return disk

    calls = stopped(tmp_path / "whole", None).calls
    assert 30 < calls < 200
    for fails_at in range(1, calls + 1):
        disk = stopped(tmp_path / f"disk-{fails_at}", fails_at)
        use(files.System())
        found = tmp_path / f"found-{fails_at}"
        disk.lose_power(found, random.Random(fails_at))
        again = opened(found, "another boot")
        for partition in again.partitions():
            assert partition.log_end_offset >= 1
            assert lookup.append_time_of(partition.segments, 0) == 5
        if (found / ".kafka_cleanshutdown").exists():
            ends = {partition.log_end_offset for partition in again.partitions()}
            assert ends == {1 if is_flushed else 2}
        again.close()


def test_only_file_systems_that_report_what_they_lose_are_synced(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    device = tmp_path.stat().st_dev
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    line = f"36 35 {device >> 8 & 0xFFF}:{device & 0xFF} / /data rw shared:1 - %s /dev/x rw\n"
    with (tmp_path / "file").open("w") as file:
        for name in ("overlay", "nfs4"):
            mounts.write_text(line % name)
            with pytest.raises(OSError, match="not supported"):
                file_systems.sync(file.fileno())
        mounts.write_text(line % "ext4")
        monkeypatch.setattr(file_systems, "_kernel", lambda: ("Linux", "5.16.20-generic"))
        with pytest.raises(OSError, match="not supported"):
            file_systems.sync(file.fileno())
        monkeypatch.setattr(file_systems, "_kernel", lambda: ("Linux", "6.1.0-13-amd64"))
        file_systems.sync(file.fileno())
