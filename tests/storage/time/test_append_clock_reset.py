"""An operator lets append time go back, once: marked by a segment, and kept through restarts."""

import pytest

from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage.log.times import partition_times
from tidelog.storage.time.append_time import ahead

WRONG_MS, RIGHT_MS = 10**15, 1_000


@pytest.fixture
def log(make_log):
    """A log that a wrong clock has written to."""
    log = make_log(message_timestamp_type="LogAppendTime", segment_ms=10**18).create()
    for now in (500, WRONG_MS):
        log.append([5], now=now)
    return log


def append_times(log):
    end = log.partition.log_end_offset
    return [log.partition.reader.append_time_of(offset) for offset in range(end)]


def test_a_crash_heeds_no_stamp_of_before(log):
    """Recovery reads everything, and the stamps of a LogAppendTime topic show the wrong time still."""
    log.partition.append_clock.reset(RIGHT_MS)
    log.append([5], now=RIGHT_MS)
    log.crash()
    log.open()
    assert log.partition.recovery_point == 0, "all of it is recovered: else this shows nothing"
    assert log.partition.last_append_time == RIGHT_MS
    log.append([5], now=RIGHT_MS + 5)
    for stop in (log.crash, log.close):
        stop()
        log.open()
        assert log.partition.last_append_time == RIGHT_MS + 5


def test_a_stamp_behind_the_mark_counts_where_the_append_time_is_lost(log):
    log.partition.append_clock.reset(RIGHT_MS)
    log.append([5], now=RIGHT_MS)
    log.crash()
    (log.directory / f"{2:020d}.appendtimes").write_bytes(b"")
    log.open()
    assert log.partition.last_append_time == RIGHT_MS


def test_a_mark_that_has_been_cut_off_counts_no_more(log):
    """Else the next batch would go back within a segment, which no reader of its times expects."""
    log.partition.append_clock.reset(RIGHT_MS)
    log.crash()
    size = (log.directory / f"{0:020d}.log").stat().st_size
    with (log.directory / f"{0:020d}.log").open("r+b") as file:  # as a power loss leaves it
        file.truncate(size - 1)
    for _ in range(2):
        log.open()
        assert [segment.base_offset for segment in log.partition.segments] == [0]
        assert log.partition.last_append_time in (500, WRONG_MS)
        assert partition_times.read(log.directory).back_offset == 0
        log.crash()


def test_a_closed_log_is_left_alone(log):
    partition = log.partition
    log.close()
    with pytest.raises(KafkaStorageError, match="is closed"):
        partition.append_clock.reset(RIGHT_MS)
    assert len(partition.segments) == 1


def test_how_far_it_is_ahead():
    assert ahead(None, 5) == 0
    assert ahead(4, 5) == 0
    assert ahead(5, -5) == 10
