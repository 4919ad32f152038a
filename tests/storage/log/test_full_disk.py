"""A full disk: no append, but reads, lookups and retention, and appends again once there is room."""

import errno

import pytest

from tests.simulation import power_loss
from tests.simulation.disks import Disk
from tests.storage.conftest import Log, OnlyWhatIsDurable
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import files


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
        log.partition.flush()
    assert log.partition.offline is None
    assert log.partition.high_watermark == 0
    assert log.partition.commit() == 3, "what is stored needs no room to become durable"
    assert log.partition.high_watermark == 3
    disk.room = None
    assert log.partition.flush() == 3


class _Refusing(files.System):
    """Refuses `count` writes, from number `left` on."""

    left = count = 0

    def write(self, number, buffers, position):
        self.left -= 1
        if self.left < 0 and self.left >= -self.count:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(number, buffers, position)


class _FailingWrites(_Refusing, Disk):
    """A disk that refuses one write, or all from one on, as a disk that has just become full."""

    def __init__(self, first, count):
        super().__init__()
        self.left, self.count = first, count


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("first", range(12))
def test_in_flush_mode_nothing_refused_comes_back(make_log, first, count, is_new):
    """Whatever write fails, an append and its commit both succeed, or nothing is left of them."""
    log = make_log(flush_messages=1, index_interval_bytes=0).create()
    acknowledged = []
    if not is_new:
        log.append([1], now=1, values=[b"kept"])
        log.partition.commit()
        acknowledged.append(b"kept")
    disk = _FailingWrites(first, count)
    before = files.use(disk)
    try:
        for value in (b"a", b"b"):
            try:
                log.append([2], now=disk.left, values=[value])
                log.partition.commit()
            except KafkaStorageError:
                continue
            acknowledged.append(value)
        disk.count = 0
        log.append([3], now=20, values=[b"last"])
        log.partition.commit()
        acknowledged.append(b"last")
        assert [value for _, _, value in log.contents()] == acknowledged
        assert log.partition.high_watermark == len(acknowledged)
        log.crash()
        log.open()
        assert [value for _, _, value in log.contents()] == acknowledged
    finally:
        files.use(before)


class _LosesPower(_Refusing, power_loss.Disk):
    """A disk that has just become full, and then loses power."""


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("first", range(12))
def test_what_a_full_disk_has_acknowledged_keeps_its_append_times(
    tmp_path, first, count, is_new, steps
):
    """Format 1 has append times beside the log only, and a power loss takes what is not synced."""
    log = Log(tmp_path / "log", flush_messages=1, index_interval_bytes=0, segment_bytes=250)
    log.path.mkdir()
    disk = _LosesPower(log.path)
    before = files.use(disk)
    acknowledged = {}
    try:
        log.create()
        for now in range(1, 8):
            if now == (1 if is_new else 3):
                disk.left, disk.count = first, count
            try:
                offset = log.append([1], now=10 + now // 2 * steps, magic=1).base_offset
                log.partition.commit()
            except KafkaStorageError:
                continue
            acknowledged[offset] = 10 + now // 2 * steps
        log.crash()
        log.path = tmp_path / "after"
        disk.lose_power(log.path, OnlyWhatIsDurable())
        files.use(before)
        log.open(boot_id="another")
        found = {each: log.partition.reader.append_time_of(each) for each in acknowledged}
        assert found == acknowledged
    finally:
        files.use(before)


def test_a_commit_after_a_roll_needs_no_room(make_log, disk):
    log = make_log(flush_messages=1, segment_bytes=200, index_interval_bytes=0).create()
    log.append([1], now=1)
    log.partition.commit()
    for now in range(2, 8):
        log.append([now], now=now)
    assert len(log.partition.segments) > 2, "no segment between the durable one and the active one"
    disk.room = 0
    assert log.partition.commit() == 7
    assert (log.partition.durable_offset, log.partition.recovery_point) == (7, 1)
    disk.room = None
    assert log.partition.flush() == 7
    assert log.partition.recovery_point == 7
