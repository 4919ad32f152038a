"""Truncation, new beginnings and follower appends: their refusals, and what a crash leaves of them.

What they do to a log is held to a model in `tests/storage/log_model`.
"""

import pytest

from tests.simulation.disks import Unsynced
from tidelog.protocol.errors import (
    CorruptMessage,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.checkpoints import EpochStart
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom
from tidelog.storage.time.adoption import Adopted

LEADER = LeaderState(0, 0, None, None)


def batch(first, *times, **settings):
    return build([Record(first + i, t, b"k", b"v") for i, t in enumerate(times)], **settings)


def follow(log, first, *times, append=10, leader=LEADER, epochs=(), **settings):
    data = batch(first, *times, **settings)
    entries = [AppendedFrom(first, append)]
    return log.partition.replica.append_as_follower(data, entries, epochs, leader, now_ms=99)


@pytest.fixture
def led(make_log):
    """A log of ten appends of two records, in segments of a few."""
    log = make_log(segment_bytes=400, index_interval_bytes=0).create()
    for i in range(10):
        log.append([i, i], now=i)
    assert len(log.partition.segments) > 2
    return log


# --- truncation -----------------------------------------------------------------------------------


def test_nothing_below_the_high_watermark_is_cut_unasked(led):
    with pytest.raises(OffsetOutOfRange, match="high watermark 20"):
        led.partition.truncater.truncate_to(19)
    assert led.partition.log_end_offset == 20
    assert led.partition.truncater.truncate_to(19, below_high_watermark=True) == 18
    assert led.partition.high_watermark == 18


@pytest.mark.parametrize("offset", [20, 21, 1 << 40])
def test_a_cut_at_the_end_or_behind_it_changes_nothing(led, offset):
    version = led.partition.state.version
    assert led.partition.truncater.truncate_to(offset) == 20
    assert led.partition.state.version is version


def test_a_cut_at_the_end_removes_an_epoch_without_a_batch(led):
    """It led, appended nothing, and follows now: with that epoch it would diverge for ever."""
    before = led.partition.state.epochs.entries
    led.partition.roles.lead(7)
    assert led.partition.state.epochs.entries[-1] == EpochStart(7, 20)
    assert led.partition.truncater.truncate_to(20) == 20
    assert led.partition.state.epochs.entries == before


@pytest.mark.parametrize("what", ["truncate", "start"])
def test_a_read_that_it_overtakes_is_not_answered(led, what, monkeypatch):
    partition, truncater = led.partition, led.partition.truncater

    def read_at(*args):
        monkeypatch.undo()
        if what == "truncate":
            truncater.truncate_to(10, below_high_watermark=True)
        else:
            truncater.start_at(10)
        return read(*args)

    read = files.read_at
    monkeypatch.setattr(files, "read_at", read_at)
    with pytest.raises(NotLeaderOrFollower):
        led.read(16)
    assert partition.log_end_offset == 10


def test_old_checkpoints_are_not_believed_after_a_kill(led):
    """A checkpoint of the recovery point, compaction and start is older than the truncation."""
    led.partition.retainer.delete_records_before(12)
    led.store.checkpoint()
    led.partition.truncater.start_at(3)
    for i in range(10):
        led.append([i], now=i)
    led.crash()
    led.open(100)
    assert [row[0] for row in led.contents()] == list(range(3, 13))
    assert led.partition.recovery_point <= 3


class Refusing(Unsynced):
    """Refuses the nth name or cut that it is asked for."""

    def __init__(self, left):
        self.left = left

    def _count(self):
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "Input/output error")

    def truncate(self, path, size):
        self._count()
        super().truncate(path, size)

    def rename(self, path, target):
        self._count()
        super().rename(path, target)

    def unlink(self, path):
        self._count()
        super().unlink(path)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("number", range(1, 40))
def test_when_the_disk_refuses_a_step_the_next_start_completes_it(led, number, anew):
    before = led.contents()
    system = files.use(Refusing(number))
    try:
        if anew:
            led.partition.truncater.start_at(6)
        else:
            led.partition.truncater.truncate_to(6, below_high_watermark=True)
        failed = False
    except KafkaStorageError:
        failed = True
    finally:
        files.use(system)
    was_begun = led.partition.offline is not None or not failed
    led.crash()
    led.open(100)
    found = led.contents()
    after = [] if anew else before[:6]
    assert found in ([after] if was_begun else [before])
    assert led.partition.log_end_offset == (6 if was_begun else 20)


# --- following ------------------------------------------------------------------------------------


def test_what_does_not_follow_is_refused_and_nothing_is_stored(led):
    for data in (batch(18, 1), batch(20, 1) + batch(20, 2), batch(20, 1)[:-1] + b"x"):
        with pytest.raises(CorruptMessage):
            led.partition.replica.append_as_follower(data, (), (), LEADER, now_ms=99)
    with pytest.raises(CorruptMessage, match="appended at 8, and the batch before it at 9"):
        follow(led, 20, 5, append=8)
    assert led.partition.log_end_offset == 20
    assert follow(led, 20, 5, append=9) == 21


def test_an_empty_log_begins_at_the_base_of_the_batch_that_holds_its_start(log):
    log.partition.truncater.start_at(7)
    leader = LEADER._replace(high_watermark=9, log_start_offset=7)
    assert follow(log, 5, 1, 2, 3, 4, leader=leader) == 9
    assert (log.partition.log_start_offset, log.partition.segments[0].base_offset) == (7, 5)


def test_a_leaders_word_survives_where_a_leader_needs_it(log):
    """Its last append time and maxEventTime: who leads next neither stamps back nor keeps longer."""
    leader = LeaderState(1, 0, 5_000, 7_000)
    follow(log, 0, 100, leader=leader)
    assert (log.partition.last_append_time, log.partition.max_event_time) == (5_000, 7_000)
    log.partition.state.become_only_replica()
    log.append([1], now=200)
    assert log.partition.reader.append_time_of(1) == 5_000


def test_an_operators_mark_begins_a_segment_and_lets_time_go_back(log):
    follow(log, 0, 1, append=9_000)
    leader = LEADER._replace(back_offset=1)
    follow(log, 1, 1, append=50, leader=leader)
    bases = [segment.base_offset for segment in log.partition.segments]
    assert (bases, log.partition.state.timing.back_offset) == ([0, 1], 1)
    assert log.partition.last_append_time == 50
    with pytest.raises(CorruptMessage):
        follow(log, 2, 1, append=49, leader=leader)


# --- unknown append times -------------------------------------------------------------------------


def adoptions(log):
    return log.partition.state.timing.adoptions.ranges


def test_a_follower_adopts_what_its_leader_does_not_know_and_forgets_what_is_cut(make_log):
    log = make_log().create()
    follow(log, 0, 5, append=10)
    assert adoptions(log) == ()
    follow(log, 1, 5, append=None)
    follow(log, 2, 5, append=None)
    assert adoptions(log) == (Adopted(3, 99),)
    follow(log, 3, 5, append=20)
    assert [segment.known.adoptions.ranges for segment in log.partition.segments] == [
        adoptions(log)
    ]
    log.partition.truncater.truncate_to(2)
    assert adoptions(log) == (Adopted(2, 99),)
    (segment,) = log.partition.segments
    assert (segment.times.last_append, segment.known.adoptions.ranges) == (99, adoptions(log))
    log.close()
    log.open()
    assert adoptions(log) == (Adopted(2, 99),)
    log.partition.truncater.start_at(7)
    assert adoptions(log) == (Adopted(2, 99),)
    assert log.partition.segments[0].known.adoptions.ranges == adoptions(log)
