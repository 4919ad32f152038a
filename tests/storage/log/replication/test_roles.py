"""Leading and following: append times, retention, compaction and marks when the role changes."""

from threading import Thread
from time import sleep

import pytest

from tidelog.protocol.errors import FencedLeaderEpoch, KafkaStorageError, NotLeaderOrFollower
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.layout import Compression
from tidelog.storage.checkpoints import EpochStart
from tidelog.storage.log.epochs import LeaderEpochs
from tidelog.storage.log.flusher import Flusher
from tidelog.storage.log.high_watermark import Role
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom, unpacked
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.saved_times import SavedTimes
from tidelog.storage.log.values import RecoveryState
from tidelog.storage.time.adoption import Adopted
from tidelog.storage.time.corrections import (
    NO_END_OFFSET,
    NO_HISTORY,
    ForwardStep,
    Mark,
    WrittenBehind,
    step_back,
)

HOUR = 3_600_000
LEADER = LeaderState(0, 0, None, None)
RESET = LEADER._replace(
    mark=Mark(2, 1), back_offset=2, corrections=(step_back(2, 500),), max_event_time=600
)


def follow(log, first, *times, append=10, leader=LEADER, now=99, **settings):
    rows = [Record(first + i, time, b"k", b"v") for i, time in enumerate(times)]
    data = build(rows, **settings) if rows else b""
    entries = [AppendedFrom(first, append)]
    return log.partition.replica.append_as_follower(data, entries, (), leader, now_ms=now)


def say(log, leader):
    """Let the leader send its facts without batches."""
    return follow(log, log.partition.log_end_offset, leader=leader)


# --- roles ----------------------------------------------------------------------------------------


def test_an_epoch_begins_durably_before_its_first_append(make_log):
    log = make_log(message_format_version="0.9.0").create()
    log.append([-1], magic=0)
    assert log.partition.roles.lead(5) == 1
    entries = [(0, 0), (5, 1)]
    assert list(LeaderEpochs(log.directory, 2).entries) == entries
    log.append([-1], magic=0)
    assert list(log.partition.state.epochs.entries) == entries


@pytest.mark.parametrize("role", ["lead", "follow"])
def test_an_epoch_that_is_over_is_refused(log, role):
    log.partition.roles.lead(5)
    with pytest.raises(FencedLeaderEpoch, match="leader epoch 4 is over, it is 5"):
        getattr(log.partition.roles, role)(4)
    assert log.partition.state.leadership.role is Role.LEADER


def test_replication_moves_the_high_watermark_of_a_leader(log):
    log.append([1, 2])
    log.partition.roles.lead(1)
    log.append([3])
    log.partition.flush()
    assert (log.partition.high_watermark, log.partition.log_end_offset) == (2, 3)
    with log.partition.state.append_lock:
        log.partition.state.advance_high_watermark(3)
    assert log.partition.high_watermark == 3


@pytest.mark.parametrize("role", ["lead", "follow"])
def test_an_opened_log_is_readable_as_far_as_is_known(log, role):
    log.partition.roles.follow(1)
    for offset, time in enumerate((5_000, 9_000)):
        follow(log, offset, time, leader=LEADER._replace(high_watermark=1))
    log.crash()
    log.open(2)
    getattr(log.partition.roles, role)(2, high_watermark=1)
    assert (log.partition.high_watermark, log.partition.max_event_time) == (1, 5_000)
    with log.partition.state.append_lock:
        log.partition.state.advance_high_watermark(2)
    assert log.partition.max_event_time == 9_000


@pytest.mark.parametrize("release", ["0.10.2", "3.0"])
def test_compressed_batches_above_the_high_watermark_have_no_largest_event_time(make_log, release):
    """Where a compressed batch of format 1 begins is not in its header."""
    log = make_log(message_format_version=release).create()
    log.partition.roles.lead(1)
    magic = 1 if release == "0.10.2" else 2
    for time in (5_000, 9_000):
        log.append([time], magic=magic, compression=Compression.GZIP)
    log.store.checkpoint()  # what is known of the times up to here
    log.append([7_000], magic=magic, compression=Compression.GZIP)
    log.crash()
    log.open(2)
    log.partition.roles.follow(2, high_watermark=1)
    assert (log.partition.high_watermark, log.partition.max_event_time) == (1, 5_000)


@pytest.mark.parametrize("stop", ["crash", "close"])
@pytest.mark.parametrize("role", ["lead", "follow"])
def test_a_stop_before_the_first_role_makes_nothing_readable(log, role, stop):
    log.partition.roles.follow(1)
    for offset in range(3):
        follow(log, offset, 5, leader=LEADER._replace(high_watermark=1))
    log.store.checkpoint()
    log.crash()
    log.open(2)
    log.store.checkpoint()
    getattr(log, stop)()
    log.open(3)
    getattr(log.partition.roles, role)(2)
    assert log.partition.high_watermark == 1


@pytest.mark.parametrize(("role", "end"), [("lead", 3), ("follow", 1)])
def test_lost_append_times_are_fetched_again_also_after_another_stop(log, role, end):
    log.partition.roles.follow(1)
    follow(log, 0, 5)
    log.store.checkpoint()
    follow(log, 1, 5)
    follow(log, 2, 5)
    for boot in ("after a power loss", "after another"):
        log.crash()
        log.open(2, boot_id=boot)
    log.crash()
    log.open(3, boot_id="after another")
    getattr(log.partition.roles, role)(2)
    assert log.partition.log_end_offset == end


def test_append_times_that_the_leader_does_not_know_are_not_lost_with_the_process(log):
    told = LEADER._replace(adopted=(Adopted(2, 1_000),))
    log.partition.roles.follow(1)
    follow(log, 0, 5, leader=told)
    follow(log, 1, 5, append=None, leader=told)
    log.crash()
    log.open(2)
    assert log.partition.roles.follow(2) == 2
    assert log.partition.state.timing.adoptions.ranges == told.adopted


@pytest.mark.parametrize("stop", ["the process dies", "a clean stop", "the power goes"])
def test_append_times_that_were_unknown_before_a_stop_are_not_lost_in_it(log, stop):
    """The leader knows them, so it tells no adoption: it led after who has lost them."""
    log.partition.roles.follow(1)
    follow(log, 0, 5, append=None, leader=LEADER._replace(adopted=()))
    follow(log, 1, 5, leader=LEADER._replace(adopted=()))
    if stop == "a clean stop":
        log.close()
    else:
        log.store.checkpoint()
        log.crash()
    log.open(2, boot_id="" if stop == "the process dies" else "another")
    assert log.partition.roles.follow(2) == 2


def test_lost_append_times_are_fetched_again_also_after_a_clean_stop_without_a_role(log):
    log.partition.roles.follow(1)
    follow(log, 0, 5)
    log.store.checkpoint()
    follow(log, 1, 5)
    log.crash()
    for _ in range(2):
        log.open(2, boot_id="after a power loss")
        log.close()
    log.open(2, boot_id="after a power loss")
    assert log.partition.roles.follow(2) == 1
    follow(log, 1, 5)
    log.crash()
    log.open(3, boot_id="after a power loss")
    assert log.partition.roles.follow(3) == 2


def test_what_is_appended_without_a_role_after_a_power_loss_is_not_lost(log):
    log.partition.roles.follow(1)
    follow(log, 0, 5)
    log.crash()
    log.open(2, boot_id="after a power loss")
    log.append([6], now=20)
    log.crash()
    log.open(21, boot_id="after a power loss")
    assert log.partition.state.recovery.lost_offset is None
    assert [log.partition.reader.append_time_of(offset) for offset in range(2)] == [None, 20]


def test_a_first_append_that_fails_does_not_undo_what_a_role_has_decided(log, monkeypatch):
    log.partition.roles.follow(1)
    follow(log, 0, 5)
    log.crash()
    log.open(2, boot_id="after a power loss")
    state, write = log.partition.state, partition_times.write
    was_locked = []

    def lead():
        was_locked.append(not state.append_lock.acquire(blocking=False))
        if not was_locked[0]:
            log.partition.roles.lead(2)
            state.append_lock.release()

    leading = Thread(target=lead)

    def fail(*_args, **_settings):
        monkeypatch.setattr(partition_times, "write", write)
        leading.start()
        while not (any(was_locked) or state.recovery.is_counted):
            sleep(0.001)
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(partition_times, "write", fail)
    with pytest.raises(KafkaStorageError):
        log.append([6], now=20)
    leading.join()
    if was_locked[0]:
        log.partition.roles.lead(2)
    assert state.recovery == RecoveryState()


def test_what_a_power_loss_took_is_lost_also_where_the_leader_has_adopted_some(log):
    told = LEADER._replace(adopted=(Adopted(2, 1_000),))
    log.partition.roles.follow(1)
    follow(log, 0, 5, leader=told)
    follow(log, 1, 5, append=None, leader=told)
    log.partition.roles.follow(2)
    log.crash()
    (log.directory / f"{0:020}.appendtimes").write_bytes(b"")
    log.open(2, boot_id="after a power loss")
    assert log.partition.roles.follow(3) == 0


@pytest.mark.parametrize(
    ("lost_bytes", "starts", "end"), [(40, 1, 0), (16, 1, 1), (1, 1, 1), (16, 2, 0)]
)
def test_append_times_that_a_failing_disk_has_lost_are_fetched_again_on_the_same_boot(
    log, lost_bytes, starts, end
):
    """A process that dies leaves them all: each is written before its batch.

    The log could not note that a sync had failed, because the disk was full. A second start before
    it has a role trusts what is durable alone.
    """
    log.partition.roles.follow(1)
    follow(log, 0, 5, append=10)
    follow(log, 1, 5, append=20)
    path = log.directory / f"{0:020}.appendtimes"
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost_bytes] + bytes(lost_bytes % len(whole)))
    for _ in range(starts):
        log.crash()
        log.open(2)
    assert log.partition.roles.follow(2) == end


def test_what_was_never_below_the_high_watermark_does_not_count_after_two_stops(log):
    log.partition.roles.follow(1)
    for offset, time in enumerate((5_000, 9_000)):
        follow(log, offset, time, leader=LEADER._replace(high_watermark=1))
    log.store.checkpoint()
    for boot in ("another", "a third"):
        log.crash()
        log.open(2, boot_id=boot)
    log.partition.roles.follow(2)
    log.partition.truncater.truncate_to(1)
    assert log.partition.max_event_time == 5_000


@pytest.mark.parametrize(("setting", "stored"), [("1", 1), ("2", 2)])
def test_what_counts_as_stored(make_log, setting, stored):
    log = make_log(flush_messages=int(setting)).create()
    log.partition.roles.follow(1)
    follow(log, 0, 5)
    log.partition.commit()
    follow(log, 1, 5)
    assert log.partition.stored_offset == stored
    log.partition.commit()
    assert log.partition.stored_offset == 2
    log.partition.roles.lead(2)
    log.append([5])
    read = log.partition.reader.read_for_follower(2, 1 << 20, minimum_one=True)
    assert bool(read.fetched.size) == (stored == 2)


# --- append times ---------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [1, 9_999, 10_001, 300 * HOUR])
def test_a_new_leader_goes_on_from_the_last_append_time(log, behind):
    now = 400 * HOUR
    follow(log, 0, 5, append=now)
    log.partition.roles.lead(1)
    log.append([5], now=now - behind)
    assert log.partition.reader.append_time_of(1) == now
    log.append([5], now=now + 1)
    assert log.partition.reader.append_time_of(2) == now + 1
    assert log.partition.state.timing.corrections == ()


def ages(log):
    """What each segment counts as appended by."""
    return [
        log.partition.state.judge(each, each.times).last_append for each in log.partition.segments
    ]


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_leader_in_the_past_has_appended_counts_as_later(log, is_killed):
    now = 400 * HOUR
    follow(log, 0, 5, append=90 * HOUR)
    log.partition.state.begins_segment = True
    behind = LEADER._replace(behind_ms=399 * HOUR)
    follow(log, 1, 5, append=90 * HOUR, leader=behind)  # append times stand still
    follow(log, 2, 5, append=90 * HOUR, leader=behind)
    if is_killed:
        log.crash()
        log.open(now)
        log.partition.roles.follow(1)
    say(log, LEADER)  # its clock is right again, and nobody has corrected the log
    log.partition.roles.lead(3)
    log.partition.append_clock.note_leaders_behind(now)
    log.append([5], now=now)
    assert ages(log) == [90 * HOUR, now, now]
    assert log.partition.state.timing.mark == Mark(3, 1)
    log.crash()
    log.open(now)
    assert ages(log) == [90 * HOUR, now, now]


def test_what_a_leader_appends_once_its_clock_is_right_again_counts_as_it_is(log):
    now = 400 * HOUR
    behind = LEADER._replace(behind_ms=399 * HOUR)
    follow(log, 0, 5, append=HOUR, leader=behind)
    for offset in (1, 2):
        log.partition.state.begins_segment = True
        follow(log, offset, 5, append=300 * HOUR)
        log.crash()
        log.open(now)
        log.partition.roles.follow(1)
    log.partition.roles.lead(3)
    log.partition.append_clock.note_leaders_behind(now)
    assert ages(log) == [now, 300 * HOUR, 300 * HOUR]
    log.crash()
    log.open(now)
    assert log.partition.state.timing.written_behind is None


@pytest.mark.parametrize("stop", ["crash", "close"])
def test_a_log_whose_copies_are_gone_leads_as_the_only_replica(log, stop):
    follow(log, 0, 5, append=HOUR, leader=LEADER._replace(behind_ms=30_000))
    for _ in range(2):
        getattr(log, stop)()
        log.open(400 * HOUR, is_only_replica=True)
        state = log.partition.state
        assert (state.leadership.role, state.awaits_role, state.leadership.is_replicated) == (
            Role.LEADER,
            False,
            False,
        )
        assert ages(log) == [HOUR + 30_000]
        stored = partition_times.read(log.directory)
        assert (stored.is_replicated, stored.written_behind) == (False, None)
        assert (log.partition.high_watermark, log.partition.max_event_time) == (1, 5)
    log.partition.roles.lead(3)
    assert (state.leadership.is_replicated, state.timing.mark) == (True, Mark(3, 1))


def test_a_log_that_cannot_note_that_it_is_the_only_replica_awaits_its_role(log, monkeypatch):
    follow(log, 0, 5, append=HOUR)
    log.close()

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(partition_times, "write", refuse)
        log.open(2 * HOUR, is_only_replica=True)
    assert log.partition.state.awaits_role
    log.close()
    log.open(2 * HOUR, is_only_replica=True)
    assert not log.partition.state.awaits_role


def test_a_leader_whose_clock_stands_still_is_noted_every_ten_seconds_it_falls_behind(log):
    for behind_ms in range(10_001, 50_000, 1_000):
        leader = LEADER._replace(behind_ms=behind_ms)
        follow(log, log.partition.log_end_offset, 5, append=HOUR, leader=leader)
        stored = partition_times.read(log.directory).written_behind
        assert stored.behind_ms - 10_000 < behind_ms <= stored.behind_ms
        assert stored.behind_ms % 10_000 == 0


def test_a_leaders_clock_that_cannot_be_noted_is_noted_with_the_next_answer(log, monkeypatch):
    follow(log, 0, 5, append=HOUR)
    behind = LEADER._replace(behind_ms=30_000)

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(partition_times, "write", refuse)
        with pytest.raises(KafkaStorageError, match="the leader's clock is not noted"):
            follow(log, 1, 5, append=HOUR, leader=behind)
    # What it wrote is not stored before: this broker may be killed, and the clock be set right.
    assert log.partition.log_end_offset == 1
    say(log, behind)
    assert partition_times.read(log.directory).written_behind.behind_ms == 30_000


def test_what_is_noted_of_a_leaders_clock_during_a_flush_is_durable_after_it(log, monkeypatch):
    follow(log, 0, 5, append=HOUR)
    sync_all = Flusher.sync_all

    def sync_and_follow(flusher):
        sync_all(flusher)
        follow(log, 1, 5, append=HOUR, leader=RESET._replace(behind_ms=30_000))

    monkeypatch.setattr(Flusher, "sync_all", sync_and_follow)
    log.partition.flush()
    log.crash()
    log.open(400 * HOUR)
    state = log.partition.state
    assert (state.timing.written_behind, state.timing.mark) == (
        WrittenBehind(1, 2, 30_000),
        RESET.mark,
    )


def test_what_is_noted_of_a_leaders_clock_while_others_save_times_is_durable_after_it(
    log, monkeypatch
):
    """Another thread has collected what it saves, and not written it yet."""
    follow(log, 0, 5, append=HOUR)
    covered, noting = SavedTimes.covered, []

    def collect(saved_times):
        times = covered(saved_times)
        if not noting:
            told = {"append": HOUR, "leader": LEADER._replace(behind_ms=30_000)}
            noting.append(Thread(target=follow, args=(log, 1, 5), kwargs=told))
            noting[0].start()
            noting[0].join(0.2)
        return times

    log.partition.state.gaps_end_offset = 1  # there is something to save
    with monkeypatch.context() as broken:
        broken.setattr(SavedTimes, "covered", collect)
        log.partition.state.saved_times.save_covered(durable=True)
        noting[0].join(30)
    stored = partition_times.read(log.directory).written_behind
    assert stored == WrittenBehind(1, NO_END_OFFSET, 30_000)


def test_a_leader_that_was_a_little_behind_shifts_what_it_appended_by_that(log):
    follow(log, 0, 5, append=HOUR, leader=LEADER._replace(behind_ms=30_000))
    log.partition.roles.lead(3)
    log.partition.append_clock.note_leaders_behind(2 * HOUR)
    assert ages(log) == [HOUR + 30_000]


def test_what_a_follower_got_of_an_epoch_before_its_start_counts_as_later_too(log):
    follow(log, 0, 5, append=HOUR)
    log.partition.roles.follow(2)
    log.partition.state.epochs.adopt([EpochStart(2, 0)])
    say(log, LEADER._replace(behind_ms=30_000))
    log.partition.roles.lead(3)
    log.partition.append_clock.note_leaders_behind(2 * HOUR)
    assert ages(log) == [HOUR + 30_000]


def test_a_leader_that_has_corrected_itself_is_believed(log):
    follow(log, 0, 5, append=HOUR, leader=LEADER._replace(behind_ms=30_000))
    say(log, LEADER._replace(mark=Mark(1, 1)))
    log.partition.roles.lead(3)
    log.partition.append_clock.note_leaders_behind(2 * HOUR)
    assert ages(log) == [HOUR]


@pytest.mark.parametrize("is_elected_again", [False, True])
def test_a_leader_corrects_what_it_appended_while_its_clock_was_behind(log, is_elected_again):
    log.partition.roles.lead(1)
    log.append([5], now=100 * HOUR)
    log.partition.append_clock.catch_up(NO_HISTORY, 50 * HOUR)
    log.partition.state.begins_segment = True
    log.append([5], now=51 * HOUR)  # append times stand still
    if is_elected_again:
        log.partition.roles.resign()
        log.partition.roles.lead(2)
        log.partition.append_clock.catch_up(NO_HISTORY, 52 * HOUR)
    step = ForwardStep(50 * HOUR, 60 * HOUR, 60 * HOUR, 120 * HOUR)
    log.partition.append_clock.note_step_forward(step, "a clock", 1)
    assert ages(log) == [100 * HOUR, 120 * HOUR]


def test_what_is_truncated_is_not_corrected_where_a_right_leader_has_appended(log):
    for offset in range(2):
        log.partition.state.begins_segment = True
        follow(log, offset, 5, append=HOUR, leader=LEADER._replace(behind_ms=30_000))
    log.partition.truncater.truncate_to(1)
    log.partition.roles.follow(2)
    log.partition.state.begins_segment = True
    follow(log, 1, 5, append=HOUR)
    log.partition.roles.lead(3)
    log.partition.append_clock.note_leaders_behind(2 * HOUR)
    assert ages(log) == [HOUR + 30_000, HOUR]


def test_a_segment_of_a_clock_that_was_ahead_ends_where_others_have_copies(make_log):
    log = make_log(segment_ms=10 * HOUR).create()
    log.partition.roles.lead(1)
    log.append([5], now=300 * HOUR)
    log.partition.append_clock.catch_up(NO_HISTORY, HOUR)
    for hours in (1, 2, 12, 13):  # append times stand still
        log.append([5], now=hours * HOUR)
    assert [each.base_offset for each in log.partition.segments] == [0, 1, 3]
    assert log.partition.state.timing.corrections == ()


def test_a_restart_does_not_let_append_times_of_a_replica_go_back(log):
    follow(log, 0, 5, append=9 * HOUR)
    log.close()
    log.open(HOUR)
    assert log.partition.last_append_time == 9 * HOUR
    assert log.partition.state.timing.corrections == ()


def test_an_only_replica_corrects_itself_as_before(log):
    log.append([5], now=9 * HOUR)
    log.partition.append_clock.note_step_back(HOUR)
    log.append([5], now=HOUR)
    assert log.partition.reader.append_time_of(1) == HOUR


def test_a_log_that_follows_takes_no_append(log):
    follow(log, 0, 5)
    log.partition.roles.follow(2)
    with pytest.raises(NotLeaderOrFollower, match="another broker leads"):
        log.append([6], now=100)
    assert log.partition.log_end_offset == 1
    log.partition.roles.lead(3)
    log.append([6], now=100)
    assert log.partition.log_end_offset == 2


def test_only_a_leader_lets_append_times_go_back(log):
    follow(log, 0, 5, append=9 * HOUR)
    for ask in (log.partition.append_clock.preview_reset, log.partition.append_clock.reset):
        with pytest.raises(NotLeaderOrFollower):
            ask(HOUR)
    log.partition.roles.lead(3)
    reset = log.partition.append_clock.reset(HOUR)
    assert (reset.offset, log.partition.state.timing.mark) == (1, Mark(3, 1))
    log.append([5], now=HOUR + 1)
    assert log.partition.reader.append_time_of(1) == HOUR + 1


def test_who_leads_with_lost_append_times_can_be_followed_by_who_has_them(make_log):
    """After an unclean election: the leader's clock is hours behind what the others know."""
    leader, follower = make_log("leader").create(), make_log("follower").create()
    for log in (leader, follower):
        log.partition.roles.follow(1)
        follow(log, 0, 5, append=9 * HOUR)
    follower.partition.roles.follow(2)
    leader.crash()
    (leader.directory / f"{0:020}.appendtimes").write_bytes(b"")
    leader.open(HOUR, boot_id="after a power loss")
    assert leader.partition.roles.lead(2) == 1
    leader.append([6], now=HOUR)
    read = leader.partition.reader.read_for_follower(1, 1 << 20, minimum_one=True)
    follower.partition.replica.append_as_follower(
        b"".join(read.fetched.buffers),
        unpacked(read.append_times),
        read.epochs,
        read.leader,
        now_ms=99,
    )
    assert follower.partition.reader.append_time_of(1) == HOUR
    assert follower.partition.state.timing.mark == leader.partition.state.timing.mark == Mark(2, 1)
    leader.crash()
    leader.open(HOUR, boot_id="after a power loss")
    assert leader.partition.state.timing.back_offset == 1
    assert [segment.base_offset for segment in leader.partition.segments] == [0, 1]


# --- marks ----------------------------------------------------------------------------------------


@pytest.fixture
def followed(log):
    """A log that follows in epoch 2, and has two records of a clock that was far ahead."""
    log.partition.roles.follow(2)
    follow(log, 0, 7 * HOUR, 8 * HOUR, append=9 * HOUR, leader=LEADER._replace(high_watermark=2))
    assert (log.partition.last_append_time, log.partition.max_event_time) == (9 * HOUR, 8 * HOUR)
    return log


def test_a_newer_mark_lowers_and_is_durable(followed):
    say(followed, RESET)
    assert followed.partition.last_append_time is None
    assert followed.partition.max_event_time == 500 + HOUR
    follow(followed, 2, 550, append=510, leader=RESET._replace(last_append_time_ms=510))
    followed.crash()
    followed.open(600)
    state = followed.partition.state
    assert (state.timing.mark, state.timing.back_offset, state.timing.corrections) == (
        Mark(2, 1),
        2,
        RESET.corrections,
    )
    assert followed.partition.last_append_time == 510
    assert [segment.base_offset for segment in followed.partition.segments] == [0, 2]


def test_what_a_log_corrected_while_it_was_alone_has_a_mark_once_it_leads(log):
    log.append([5], now=9 * HOUR)
    assert log.partition.append_clock.reset(HOUR)
    assert log.partition.state.timing.mark == Mark()
    log.partition.roles.lead(3)
    assert log.partition.state.timing.mark == Mark(3, 1)
    log.partition.roles.lead(4)
    log.crash()
    log.open(HOUR)
    assert log.partition.state.timing.mark == Mark(3, 1)


def test_who_leads_a_log_without_corrections_sets_no_mark(log):
    log.append([5], now=9 * HOUR)
    log.partition.roles.lead(3)
    assert log.partition.state.timing.mark == Mark()


def test_an_outdated_answer_changes_no_times(followed):
    say(followed, RESET)
    say(followed, LEADER._replace(last_append_time_ms=9 * HOUR, max_event_time=8 * HOUR))
    state = followed.partition.state
    assert (state.timing.mark, state.last_append_time_ms) == (Mark(2, 1), None)
    assert state.timing.corrections == RESET.corrections
    assert followed.partition.max_event_time == 500 + HOUR


def test_a_mark_that_no_later_leader_has_heard_of_is_undone(followed):
    say(followed, RESET)
    followed.partition.roles.follow(3)
    say(followed, LEADER._replace(last_append_time_ms=9 * HOUR, max_event_time=8 * HOUR))
    state = followed.partition.state
    assert (state.timing.mark, state.timing.corrections, state.timing.back_offset) == (
        Mark(),
        (),
        0,
    )
    assert state.last_append_time_ms == 9 * HOUR
    assert followed.partition.max_event_time == 8 * HOUR


def test_the_same_mark_only_raises(followed):
    say(followed, RESET)
    say(followed, RESET._replace(last_append_time_ms=700, max_event_time=100))
    assert followed.partition.last_append_time == 700
    assert followed.partition.max_event_time == 500 + HOUR
    say(followed, RESET._replace(last_append_time_ms=600, max_event_time=2 * HOUR))
    assert (followed.partition.last_append_time, followed.partition.max_event_time) == (
        700,
        2 * HOUR,
    )


def test_who_is_elected_before_a_correction_is_reached_has_none_of_what_comes(followed):
    ahead = RESET._replace(back_offset=9, corrections=(step_back(9, 500),))
    say(followed, ahead)
    followed.partition.roles.lead(3)
    assert followed.partition.state.timing.corrections == (step_back(2, 500),)
    assert followed.partition.last_append_time == 9 * HOUR


def test_unknown_append_times_count_from_the_leaders_adoption(log):
    told = LEADER._replace(adopted=(Adopted(1, 1_000), Adopted(2, 2_000)))
    follow(log, 0, -1, append=None, leader=told, now=77 * HOUR)
    follow(log, 1, -1, append=None, leader=told, now=78 * HOUR)
    assert log.partition.state.timing.adoptions.ranges == told.adopted
    (segment,) = log.partition.segments
    assert (segment.times.aging, segment.times.last_append) == (2_000, 2_000)


def test_a_follower_keeps_when_it_adopted_what_a_new_leader_knows_the_times_of(log):
    """Else each start would adopt the batch anew, and it would be kept the longer."""
    adopted = (Adopted(1, 1_000),)
    log.partition.roles.follow(1)
    follow(log, 0, -1, append=None, leader=LEADER._replace(adopted=adopted))
    log.partition.roles.follow(2)
    follow(log, 1, 5, append=3_000, leader=LEADER._replace(adopted=()))
    log.crash()
    log.open(78 * HOUR)
    log.partition.roles.lead(3)
    read = log.partition.reader.read_for_follower(0, 1 << 20, minimum_one=True)
    assert read.leader.adopted == adopted


# --- what goes ------------------------------------------------------------------------------------


@pytest.fixture
def expired(make_log):
    """A follower with segments that are older than its settings allow, by any clock."""
    log = make_log(segment_bytes=200, retention_ms=1_000, retention_bytes=300).create()
    for offset in range(8):
        follow(log, offset, 5, append=10, leader=LEADER._replace(high_watermark=offset + 1))
    assert len(log.partition.segments) > 3
    return log


def test_a_follower_deletes_only_what_its_leader_has(expired):
    partition = expired.partition
    assert partition.retainer.apply_retention(900 * HOUR) == []
    assert partition.log_start_offset == 0
    assert {each.policy for each in partition.retainer.explain(900 * HOUR).segments} == {None}
    start = partition.segments[2].base_offset
    say(expired, LEADER._replace(high_watermark=8, log_start_offset=start))
    deleted = partition.retainer.apply_retention(900 * HOUR)
    assert len(deleted) == 2
    assert (partition.log_start_offset, partition.segments[0].base_offset) == (start, start)


def test_a_new_leader_deletes_when_its_high_watermark_has_reached_its_epoch(expired):
    partition = expired.partition
    follow(expired, 8, 5, leader=LEADER._replace(high_watermark=8))
    assert partition.roles.lead(1) == 9
    assert partition.retainer.apply_retention(900 * HOUR) == []
    with partition.state.append_lock:
        partition.state.advance_high_watermark(9)
    assert partition.retainer.apply_retention(900 * HOUR)
    assert partition.log_start_offset == 9


def test_a_replica_without_a_role_deletes_nothing_by_its_own_settings(expired):
    expired.store.checkpoint()
    expired.crash()
    expired.open(900 * HOUR)
    partition = expired.partition
    assert partition.retainer.apply_retention(900 * HOUR) == []
    partition.roles.lead(1)
    assert partition.retainer.apply_retention(900 * HOUR)


def test_who_resigns_deletes_nothing_until_it_leads_again(expired):
    partition = expired.partition
    partition.roles.lead(1)
    partition.roles.resign()
    assert partition.retainer.apply_retention(900 * HOUR) == []
    partition.roles.lead(2)
    assert partition.retainer.apply_retention(900 * HOUR)


def test_a_replica_without_a_role_compacts_nothing(make_log):
    log = make_log(
        segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01
    ).create()
    for offset in range(40):
        follow(log, offset, 5, leader=LEADER._replace(high_watermark=40))
    log.store.checkpoint()
    log.crash()
    log.open(2)
    assert log.partition.compactor.dirty_section(900 * HOUR).upper_offset == 0
    log.partition.roles.lead(1)
    assert log.partition.compactor.dirty_section(900 * HOUR).upper_offset > 0


@pytest.mark.parametrize(("cleaned_offset", "upper_offset"), [(None, 0), (7, 6), (40, 38)])
def test_a_follower_compacts_no_further_than_its_leader(make_log, cleaned_offset, upper_offset):
    log = make_log(
        segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01
    ).create()
    leader = LEADER._replace(high_watermark=40, cleaned_offset=cleaned_offset)
    for offset in range(40):
        follow(log, offset, 5, append=10, leader=leader)
    log.store.checkpoint()
    job = log.partition.compactor.begin_cleaning(900 * HOUR, durable_offset=40)
    assert (0 if job is None else job.upper_offset) == upper_offset
    log.partition.compactor.end_cleaning(None)
    log.partition.roles.lead(1)
    assert log.partition.compactor.dirty_section(900 * HOUR).upper_offset == 38


@pytest.mark.parametrize("how", ["follow", "truncate"])
def test_an_epoch_without_appends_does_not_hold_for_what_another_leader_sends(log, how):
    follow(log, 0, 5)
    log.partition.roles.lead(2)
    if how == "follow":
        log.partition.roles.follow(3)
    else:
        log.partition.truncater.truncate_to(1)
    assert log.partition.state.epochs.latest == 0
    told = [EpochStart(1, 1), EpochStart(3, 2)]
    data = build([Record(1, 5, b"k", b"v"), Record(2, 5, b"k", b"v")], magic=1)
    log.partition.replica.append_as_follower(data, [AppendedFrom(1, 10)], told, LEADER, now_ms=99)
    assert log.partition.state.epochs.entries == ((0, 0), (1, 1), (3, 2))
