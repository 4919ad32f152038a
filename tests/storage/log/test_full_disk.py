"""A full disk: no append, but reads, lookups and retention, and appends again once there is room."""

import pytest

from protocol.errors import KafkaStorageError
from storage import files
from tests.simulation.disks import Disk


@pytest.fixture
def disk():
    disk = Disk()
    before = files.use(disk)
    yield disk
    files.use(before)


@pytest.mark.parametrize("room", [0, 1, 20, 70, 100])
def test_an_append_that_does_not_fit_leaves_nothing(log, disk, room):
    log.append([1, 2], now=1)
    disk.room = room
    for _ in range(3):
        with pytest.raises(KafkaStorageError, match="disk is full"):
            log.append([3], now=2, values=[b"x" * 200])
        assert [offset for offset, _, _ in log.contents()] == [0, 1]
        assert log.partition.reader.find_by_time(2, upper_offset=2) == (1, 2)
    disk.room = None
    assert log.append([4], now=3).base_offset == 2
    log.crash()
    log.open()
    assert [time for _, time, _ in log.contents()] == [1, 2, 4]
    assert [log.partition.reader.append_time_of(offset) for offset in range(3)] == [1, 1, 3]


@pytest.mark.parametrize("room", [0, 30, 300])
def test_retention_makes_room(make_log, disk, room):
    log = make_log(segment_bytes=300, retention_ms=100, file_delete_delay_ms=10).create()
    for now in (1, 2, 3, 500):
        log.append([now], now=now, values=[b"x" * 200])
    disk.room = room
    deleted = log.partition.retainer.apply_retention(500)
    assert [deletion.base_offset for deletion in deleted] == [0, 1, 2]
    assert log.partition.log_start_offset == 3
    log.partition.retainer.apply_retention(510)
    assert not list(log.directory.glob("*.deleted"))
    disk.room = None
    log.append([501], now=501)
    log.crash()
    log.open()
    assert [time for _, time, _ in log.contents()] == [500, 501]


def test_on_a_full_disk_the_active_segment_stays_where_all_is_due(make_log, disk):
    log = make_log(segment_bytes=300, retention_ms=100).create()
    for now in (1, 2):
        log.append([now], now=now, values=[b"x" * 200])
    disk.room = 0
    assert [deletion.base_offset for deletion in log.partition.retainer.apply_retention(500)] == [0]
    disk.room = None
    assert [deletion.base_offset for deletion in log.partition.retainer.apply_retention(500)] == [1]


def test_a_full_disk_does_not_take_a_log_offline(make_log, disk):
    log = make_log(flush_messages=1, index_interval_bytes=0).create()
    for now in range(3):
        log.append([now], now=now)
    disk.room = 0
    with pytest.raises(KafkaStorageError, match="disk is full"):
        log.partition.commit()  # the first one writes indexes as well
    assert log.partition.offline is None
    assert log.partition.high_watermark == 0
    disk.room = None
    assert log.partition.commit() == 3
