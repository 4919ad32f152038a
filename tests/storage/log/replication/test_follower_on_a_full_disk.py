"""A follower whose disk refuses a part of an answer: a later answer brings it again."""

import errno

import pytest

from tests.simulation.disks import Unsynced
from tidelog.protocol.errors import KafkaStorageError
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom
from tidelog.storage.time.corrections import Mark, step_back

HOUR = 3_600_000
LEADER = LeaderState(2, 0, 9 * HOUR, 8 * HOUR)


class _RefusesOne(Unsynced):
    """A disk that refuses one write, for want of room."""

    def __init__(self, number):
        self.left = number

    def write(self, number, buffers, position):
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(number, buffers, position)


def follow(log, *times, append, leader):
    """Store batches that come next, and what the leader says."""
    first = log.partition.log_end_offset
    rows = [Record(first + i, time, b"k", b"v") for i, time in enumerate(times)]
    data = build(rows) if rows else b""
    entries = [AppendedFrom(first, append)]
    replica = log.partition.replica
    return replica.append_as_follower(data, entries, (), leader, now_ms=600)


@pytest.fixture
def followed(log):
    """A log that follows in epoch 2, and has two records of a clock that was far ahead."""
    log.partition.roles.follow(2)
    follow(log, 7 * HOUR, 8 * HOUR, append=9 * HOUR, leader=LEADER)
    return log


def refusal(number, call):
    """Return the error of a call on a disk that refuses one write; None: it does without it."""
    disk = _RefusesOne(number)
    before = files.use(disk)
    try:
        call()
    except KafkaStorageError as error:
        return error.message
    finally:
        files.use(before)
    assert disk.left < 0, "the call needs fewer writes"
    return None


def check(log, back_offset, append_time):
    """Check what the log has of the correction, in memory and on disk."""
    for state in (log.partition.state, _opened_again(log).partition.state):
        assert (state.timing.mark, state.timing.back_offset) == (Mark(2, 1), back_offset)
        assert state.timing.corrections == (step_back(back_offset, 500),)
        assert state.last_append_time_ms == append_time
        assert state.max_event_time == 500 + HOUR


def _opened_again(log):
    log.crash()
    return log.open(600)


def corrected(back_offset, append_time):
    return LEADER._replace(
        mark=Mark(2, 1),
        back_offset=back_offset,
        corrections=(step_back(back_offset, 500),),
        last_append_time_ms=append_time,
        max_event_time=600,
    )


def test_a_refused_correction_is_taken_from_the_next_answer(followed):
    leader = corrected(2, None)
    refused = refusal(0, lambda: follow(followed, append=0, leader=leader))
    assert "disk is full" in refused
    assert followed.partition.state.timing.mark == Mark()
    follow(followed, append=0, leader=leader)
    check(followed, 2, None)


@pytest.mark.parametrize("number", range(5))
def test_a_correction_at_the_logs_end_survives_each_refused_write(followed, number):
    leader = corrected(3, None)

    def reach():
        follow(followed, 10 * HOUR, append=9 * HOUR, leader=leader)

    follow(followed, append=0, leader=leader)  # of an offset that the log has not reached
    assert followed.partition.last_append_time == 9 * HOUR
    refused = refusal(number, reach)
    assert refused is None or "disk is full" in refused
    if followed.partition.log_end_offset == 2:
        reach()
    follow(followed, append=0, leader=leader)
    check(followed, 3, None)


@pytest.mark.parametrize("number", range(7))
def test_a_batch_behind_a_correction_survives_each_refused_write(followed, number):
    leader = corrected(2, 510)

    def store():
        follow(followed, 550, append=510, leader=leader)

    refused = refusal(number, store)
    assert refused is None or "disk is full" in refused
    if followed.partition.log_end_offset == 2:
        store()
    check(followed, 2, 510)


def test_batches_before_the_refused_one_stay_and_the_next_fetch_goes_on_behind_them(log):
    log.partition.roles.follow(2)
    batches = [build([Record(offset, 10 + offset, b"k", b"v")]) for offset in range(3)]
    entries, leader = [AppendedFrom(0, 20)], LeaderState(0, 0, 20, 12)
    replica = log.partition.replica

    def store(first):
        replica.append_as_follower(b"".join(batches[first:]), entries, (), leader, now_ms=600)

    replica.append_as_follower(batches[0], entries, (), leader, now_ms=600)  # it makes the files
    refused = refusal(1, lambda: store(1))
    assert "disk is full" in refused
    assert log.partition.log_end_offset == 2
    store(2)
    assert log.partition.log_end_offset == 3
    assert _opened_again(log).partition.log_end_offset == 3


@pytest.mark.parametrize("number", [0, 2])  # the other takes the log offline, half way
def test_lost_append_times_go_also_where_the_disk_refuses_that_at_first(log, number):
    """The leader has the batches with their times; here they would be unknown for ever."""
    partition = _lost_all_but_one(log)
    refused = refusal(number, lambda: partition.roles.follow(3))
    assert "disk is full" in refused
    assert partition.roles.follow(3) == 1
    follow(log, 5, 5, append=20, leader=LEADER)
    assert [partition.reader.append_time_of(offset) for offset in range(3)] == [20, 20, 20]
    log.crash()
    log.open(600, boot_id="after a power loss")  # a process that dies loses no time
    assert log.partition.roles.follow(4) == 3


def test_a_follower_without_room_to_drop_what_it_lost_leads_as_one_that_has_lost_it(log):
    partition = _lost_all_but_one(log)
    refused = refusal(0, lambda: partition.roles.follow(3))
    assert "disk is full" in refused
    assert partition.roles.lead(4) == 3
    assert (partition.state.timing.back_offset, partition.state.timing.mark) == (3, Mark(4, 1))


def _lost_all_but_one(log):
    """Return a log of three batches, opened after a power loss took the times of the last two."""
    partition = log.partition
    partition.roles.follow(2)
    follow(log, 5, append=20, leader=LEADER)
    log.store.checkpoint()
    for _ in range(2):
        follow(log, 5, append=20, leader=LEADER)
    log.crash()
    log.open(600, boot_id="after a power loss")
    assert log.partition.state.recovery.lost_offset == 1
    return log.partition
