"""A log whose clock was wrong: corrections are noted, kept through every stop, and cut with the log."""

from __future__ import annotations

import threading

import pytest

from tests.simulation.disks import Disk
from tidelog.storage import files
from tidelog.storage.directory.opening_clock import ClockNow
from tidelog.storage.log.retention import deletion
from tidelog.storage.log.times import partition_times
from tidelog.storage.time.append_time import ClockWentBack
from tidelog.storage.time.corrections import (
    NO_HISTORY,
    ClockHistory,
    Correction,
    ForwardStep,
    judged,
    step_back,
)

WRONG_MS, RIGHT_MS = 10**12, 1_000_000
STEP = ForwardStep(0, 10_000, RIGHT_MS, RIGHT_MS + 10_500)
STEPS = ClockHistory("a clock", ((7, STEP),))
CORRECTION = Correction(0, 1, 0, 20_000, RIGHT_MS, RIGHT_MS + 10_500)


@pytest.fixture
def log(make_log):
    """A log with one record of a clock that was ahead."""
    log = make_log(retention_ms=1000, retention_time_basis="append").create()
    log.append([5], now=WRONG_MS)
    return log


def bases(log):
    return [segment.base_offset for segment in log.partition.segments]


def append_times(log):
    end = log.partition.log_end_offset
    return [log.partition.reader.append_time_of(offset) for offset in range(end)]


def corrections(log):
    return log.partition.state.timing.corrections


def test_a_step_back_is_noted_durably_and_the_next_append_begins_a_segment(log):
    with pytest.raises(ClockWentBack):
        log.append([6], now=RIGHT_MS)
    assert log.partition.append_clock.note_step_back(RIGHT_MS)
    log.append([6], now=RIGHT_MS)
    assert bases(log) == [0, 1]
    assert append_times(log) == [WRONG_MS, RIGHT_MS]
    assert corrections(log) == (step_back(1, RIGHT_MS),)
    stored = partition_times.read(log.directory)
    assert (stored.corrections, stored.back_offset) == (corrections(log), 1)
    log.append([7], now=RIGHT_MS + 1)
    assert bases(log) == [0, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_a_time_that_was_read_before_the_clock_was_set_forward_counts_no_more(make_log, count):
    log = make_log().create()
    for _ in range(count):
        log.append([5], now=RIGHT_MS)
    clock = log.partition.append_clock
    clock.catch_up(NO_HISTORY, 10)
    clock.catch_up(STEPS, STEP.to_ms)
    before = corrections(log)
    with pytest.raises(ClockWentBack):
        log.append([6], now=20)
    clock.catch_up(ClockHistory("a clock"), 20)
    assert corrections(log) == before
    log.append([6], now=STEP.to_ms)
    clock.catch_up(STEPS, 40)  # this time it did go back
    log.append([7], now=50)
    assert append_times(log)[count:] == [STEP.to_ms, 50]


def test_a_disk_that_refuses_the_correction_refuses_the_append(log, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(partition_times, "write", refuse)
        with pytest.raises(Exception, match="the correction of the clock is not kept"):
            log.partition.append_clock.note_step_back(RIGHT_MS)
        with pytest.raises(ClockWentBack):
            log.append([6], now=RIGHT_MS)
    assert (append_times(log), corrections(log)) == ([WRONG_MS], ())
    assert log.partition.append_clock.note_step_back(RIGHT_MS)
    log.append([6], now=RIGHT_MS)
    assert append_times(log)[-1] == RIGHT_MS


@pytest.mark.parametrize("stop", ["close", "crash"])
@pytest.mark.parametrize("now", [RIGHT_MS, WRONG_MS])
def test_a_broker_alone_keeps_corrections_in_a_file_that_an_older_tidelog_reads(
    make_log, now, stop
):
    log = make_log().create()
    log.append([5], now=9_000 if now == RIGHT_MS else WRONG_MS)
    if now == RIGHT_MS:
        log.partition.append_clock.note_step_forward(STEP, "a clock", 7)
    else:
        assert log.partition.append_clock.reset(RIGHT_MS)
    before = corrections(log)
    assert len(before) == 1
    getattr(log, stop)()
    log.open(RIGHT_MS + 10_500)
    assert corrections(log) == before
    data = (log.directory / partition_times.FILE_NAME).read_bytes()
    assert data[4:8] == b"\0\0\0\3"


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_crash_before_the_append_keeps_the_correction(log, stop):
    assert log.partition.append_clock.note_step_back(RIGHT_MS)
    assert not log.partition.append_clock.note_step_back(RIGHT_MS)
    before = corrections(log)
    for _ in range(2):
        getattr(log, stop)()
        log.open(RIGHT_MS)
        assert (corrections(log), log.partition.last_append_time) == (before, None)
    log.append([6], now=RIGHT_MS + 5)
    assert (bases(log), corrections(log)) == ([0, 1], before)
    getattr(log, stop)()
    log.open(RIGHT_MS + 5)
    assert corrections(log) == before
    assert log.partition.last_append_time == RIGHT_MS + 5


def test_a_log_that_is_not_open_is_opened_when_the_clock_has_changed(log):
    log.close()
    log.open(RIGHT_MS)  # notes the correction; nothing is appended
    log.close()
    log.open(RIGHT_MS + 900)
    log.close()
    store = log.open(RIGHT_MS + 900).store
    log.close()
    log.store = store = type(store)([log.path], default_config=log.config)
    store.open(RIGHT_MS + 900)
    assert store.keeps_everything("t", 0, RIGHT_MS + 1000)
    assert not store.keeps_everything("t", 0, RIGHT_MS + 1001)
    now = ClockNow(RIGHT_MS + 900, RIGHT_MS + 900, STEPS)
    store.clock.ask(lambda: now)
    assert not store.keeps_everything("t", 0, 0)


def test_pending_steps_are_taken_into_account_once(make_log):
    log = make_log().create()
    log.append([5], now=50)
    log.close()
    for now_ms in (50, RIGHT_MS + 20_000):
        log.open(now_ms)
        log.store.clock.ask(lambda: ClockNow(RIGHT_MS + 20_000, RIGHT_MS + 20_000, STEPS))
        log.partition.append_clock.catch_up(STEPS, RIGHT_MS + 20_000)
        assert corrections(log) == (CORRECTION,)
        assert log.partition.state.timing.steps[:2] == ("a clock", 7)
        log.crash()
    log.open(RIGHT_MS + 20_000)
    log.partition.append_clock.note_step_forward(STEP, "a clock", 7)
    assert corrections(log) == (CORRECTION,)
    log.append([6], now=RIGHT_MS + 20_000)
    assert bases(log) == [0, 1]
    log.partition.append_clock.note_step_forward(STEP, "another clock", 1)  # counted anew
    assert len(corrections(log)) == 2


def test_steps_that_the_broker_could_not_store_are_counted_anew(make_log):
    log = make_log().create()
    log.append([5], now=RIGHT_MS)
    log.partition.append_clock.catch_up(STEPS, STEP.to_ms)
    log.close()
    log.open(STEP.to_ms)
    stored = ClockHistory("a clock")  # by a disk that did not take the step
    log.partition.append_clock.begin(stored, STEP.to_ms)
    log.partition.append_clock.catch_up(stored, 50)
    log.append([6], now=50)
    log.partition.append_clock.catch_up(STEPS, STEP.to_ms)
    assert judged(corrections(log), 1, 50) == RIGHT_MS + 50


def test_a_step_back_after_a_trusted_step_is_noted_though_nothing_was_appended(make_log):
    log = make_log().create()
    log.append([5], now=50)
    log.partition.append_clock.note_step_forward(
        ForwardStep(0, 10_000, WRONG_MS, WRONG_MS), "a clock", 1
    )
    assert judged(corrections(log), 0, 50) == WRONG_MS
    assert log.partition.append_clock.note_step_back(RIGHT_MS)
    assert judged(corrections(log), 0, 50) == RIGHT_MS
    assert not log.partition.append_clock.note_step_back(RIGHT_MS)


def test_a_new_log_has_nothing_of_steps_before_it(make_log):
    log = make_log()
    log.create()
    log.store.clock.ask(lambda: ClockNow(RIGHT_MS, RIGHT_MS, STEPS))
    log.store.delete_topic("t")
    log.partition = log.store.create_partition("t", log.partition.topic_id, 0, log.config, RIGHT_MS)
    log.partition.append_clock.catch_up(STEPS, 5_000)  # it goes back again
    log.append([5], now=5_000)
    log.partition.append_clock.catch_up(STEPS, RIGHT_MS)
    assert corrections(log) == ()


def test_a_step_that_concerns_no_record_changes_nothing(make_log):
    log = make_log().create()
    log.append([5], now=50)
    log.partition.append_clock.note_step_forward(ForwardStep(100, 200, 5_000, 5_300), "a clock", 1)
    assert (corrections(log), log.partition.state.timing.steps[:2]) == ((), ("a clock", 1))
    log.append([6], now=5_300)
    assert bases(log) == [0]


def test_what_is_written_after_a_truncation_is_not_corrected(log):
    log.append([5], now=WRONG_MS)
    log.append([5], now=WRONG_MS)
    log.partition.append_clock.note_step_back(RIGHT_MS)
    log.partition.truncater.truncate_to(1, below_high_watermark=True)
    assert corrections(log) == (Correction(*step_back(1, RIGHT_MS)),)
    log.append([6], now=WRONG_MS)
    assert judged(corrections(log), 1, WRONG_MS) == WRONG_MS
    log.crash()
    log.open()
    assert [c.end_offset for c in corrections(log)] == [1]


def test_a_correction_of_a_tail_that_a_power_loss_took_does_not_reach_what_comes_next(log):
    log.append([5], now=WRONG_MS)
    log.partition.append_clock.note_step_back(RIGHT_MS)
    log.crash()
    path = log.directory / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    log.open(RIGHT_MS)
    assert log.partition.log_end_offset == 1
    assert all(each.end_offset <= 1 for each in corrections(log))
    stored = partition_times.read(log.directory)
    assert all(each.end_offset <= 1 for each in stored.corrections)


@pytest.mark.parametrize("how", ["a truncation", "a power loss"])
def test_an_earlier_step_back_is_the_last_one_when_the_later_is_cut_off(log, how):
    """Append times still go back there: a follower that is not told so takes no more batches."""
    for time_ms in (WRONG_MS + 50_000, WRONG_MS, RIGHT_MS):
        log.append([5], now=time_ms)
        log.append([5], now=time_ms)
        if time_ms != RIGHT_MS:
            log.partition.append_clock.note_step_back(time_ms - 50_000)
    assert log.partition.state.timing.back_offset == 5
    if how == "a truncation":
        log.partition.truncater.truncate_to(4, below_high_watermark=True)
    else:
        log.crash()
        (log.directory / f"{5:020d}.log").unlink()
        path = log.directory / f"{3:020d}.log"
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 1)
        log.open(WRONG_MS)
    assert log.partition.log_end_offset == 4
    assert log.partition.state.timing.back_offset == 3


def test_corrections_go_with_the_records_that_they_concern(log):
    log.partition.append_clock.note_step_back(RIGHT_MS)
    log.append([6], now=RIGHT_MS)
    log.append([7], now=RIGHT_MS + 5_000)
    log.partition.retainer.apply_retention(RIGHT_MS + 1_001)
    assert log.partition.log_start_offset == 1
    assert corrections(log) == ()


def test_a_step_forward_corrects_nothing_in_an_emptied_log(make_log):
    log = make_log(retention_ms=1000, retention_time_basis="append").create()
    log.append([5], now=50)
    log.partition.retainer.apply_retention(5_000)
    assert log.partition.log_start_offset == 1
    log.partition.append_clock.note_step_forward(STEP, "a clock", 1)
    assert corrections(log) == ()
    assert partition_times.read(log.directory).corrections == ()


def test_a_leap_begins_a_segment_and_corrects_nothing(log):
    log.partition.begin_segment_at_next_append()
    log.append([6], now=WRONG_MS)
    log.append([7], now=WRONG_MS)
    assert (bases(log), corrections(log)) == ([0, 1], ())


def test_an_empty_segment_is_not_followed_by_another_one(make_log):
    log = make_log().create()
    log.partition.begin_segment_at_next_append()
    log.append([6], now=RIGHT_MS)
    log.append([7], now=RIGHT_MS)
    assert bases(log) == [0]


def test_append_times_of_before_are_never_mixed_with_those_of_after(log):
    """An append that has its time already, when the step back is noted, begins the segment."""
    disk, partition = Disk(), log.partition
    disk.may_sync.clear()
    before = files.use(disk)
    try:
        noting = threading.Thread(target=lambda: partition.append_clock.note_step_back(RIGHT_MS))
        noting.start()
        assert disk.is_syncing.wait(60)
        log.append([6], now=WRONG_MS + 1)  # meanwhile
        disk.may_sync.set()
        noting.join(60)
    finally:
        disk.may_sync.set()
        files.use(before)
    assert corrections(log) == (step_back(2, RIGHT_MS),)
    log.append([7], now=RIGHT_MS)
    assert (bases(log), append_times(log)) == ([0, 2], [WRONG_MS, WRONG_MS + 1, RIGHT_MS])


def test_a_preview_says_what_a_reset_does_and_changes_nothing(log):
    clock = log.partition.append_clock
    preview = clock.preview_reset(RIGHT_MS)
    assert (corrections(log), log.partition.last_append_time) == ((), WRONG_MS)
    assert preview.last_append_time == WRONG_MS
    assert clock.reset(RIGHT_MS) == preview
    assert clock.preview_reset(RIGHT_MS) is None
    assert clock.reset(RIGHT_MS) is None


@pytest.mark.parametrize("rolls_before_reset", [False, True])
def test_what_consumers_see_counts_although_its_segment_goes_on(make_log, rolls_before_reset):
    """Where the high watermark is within a segment when the clock goes back.

    The records below it still count for the largest event time, and no others do.
    """
    log = make_log(flush_messages=1, segment_bytes=200 if rolls_before_reset else 1 << 20).create()
    partition = log.partition
    log.append([9_000], now=WRONG_MS)
    log.append([5], now=WRONG_MS)
    partition.commit()
    for time in (9_500, 7):  # above the high watermark
        log.append([time], now=WRONG_MS)
    segment_ends = {segment.tail.end_offset for segment in partition.segments}
    assert (partition.high_watermark in segment_ends) == rolls_before_reset
    reset = partition.append_clock.reset(RIGHT_MS)
    assert (reset.max_event_time, reset.next_max_event_time) == (9_000, 9_000)
    assert partition.max_event_time == 9_000
    assert partition_times.read(log.directory).max_event_time == 9_000
    partition.commit()
    assert partition.max_event_time == 9_500


def test_a_limit_that_the_clock_raised_holds_within_a_segment_too(make_log):
    log = make_log(flush_messages=1).create()
    partition = log.partition
    log.append([WRONG_MS], now=WRONG_MS)
    partition.commit()
    log.append([WRONG_MS], now=WRONG_MS)
    partition.append_clock.reset(RIGHT_MS)
    hour = 3_600_000
    assert partition.max_event_time == RIGHT_MS + hour
    partition.commit()
    assert partition.max_event_time == RIGHT_MS + hour


def test_what_is_appended_during_a_reset_is_not_ahead_of_the_clock(make_log, monkeypatch):
    log = make_log().create()
    log.append([5], now=RIGHT_MS)
    learn = deletion.learn

    def learn_while_others_append(segments):
        log.append([6], now=RIGHT_MS + 1_000)
        learn(segments)

    monkeypatch.setattr(deletion, "learn", learn_while_others_append)
    assert log.partition.append_clock.reset(RIGHT_MS) is None
    assert corrections(log) == ()


def test_moments_of_adoption_are_corrected_too(make_log):
    log = make_log(retention_ms=1000, retention_time_basis="append").create()
    log.append([5], now=5)
    log.close()
    (log.directory / f"{0:020d}.appendtimes").unlink()
    (log.directory / "partition.times").unlink()
    log.open(WRONG_MS)  # the clock is ahead when the log is adopted
    assert log.partition.state.timing.adoptions.ranges[0].time_ms == WRONG_MS
    log.append([6], now=WRONG_MS)
    log.partition.append_clock.note_step_back(RIGHT_MS)
    log.append([7], now=RIGHT_MS)
    log.close()
    log.open(RIGHT_MS)
    assert log.partition.state.timing.adoptions.ranges[0].time_ms == RIGHT_MS
    assert log.partition.retainer.apply_retention(RIGHT_MS + 1000) == []
    assert len(log.partition.retainer.apply_retention(RIGHT_MS + 1001)) == 3


def test_records_before_the_logs_start_stay_corrected_until_they_are_deleted(make_log):
    hour = 3_600_000
    log = make_log(segment_bytes=200).create()
    for _ in range(3):
        log.append([90 * hour], now=90 * hour)  # the clock was far ahead
    log.partition.append_clock.reset(hour)
    log.append([hour], now=hour)
    corrected = log.partition.max_event_time
    assert corrected == 2 * hour
    log.partition.retainer.delete_records_before(3)
    assert log.partition.max_event_time == corrected
    assert log.partition.retainer.apply_retention(hour)
    assert (log.partition.max_event_time, log.partition.state.timing.corrections) == (corrected, ())
