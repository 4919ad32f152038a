"""Which producers a log knows after its clock was wrong, for as long as a right clock says."""

from __future__ import annotations

import pytest

from tidelog.storage.time.corrections import ForwardStep

WRONG_MS, RIGHT_MS = 10**12, 1_000_000


def idempotent(log, sequence, now):
    """Produce one record of producer 9; returns whether it was a duplicate."""
    return log.append(
        [5], now=now, producer_id=9, producer_epoch=0, base_sequence=sequence
    ).duplicate


def test_a_step_back_of_an_empty_log_is_not_forgotten(make_log):
    log = make_log().create()
    log.partition.retainer.apply_retention(WRONG_MS)
    log.partition.append_clock.note_step_back(RIGHT_MS)
    idempotent(log, 0, RIGHT_MS)
    assert idempotent(log, 0, WRONG_MS)  # by a clock that has leapt


def test_a_producer_is_known_whose_first_append_met_a_clock_in_the_past(make_log):
    """The clock is right again at the next append, and its step forward is not noted yet."""
    log = make_log().create()
    log.partition.retainer.apply_retention(WRONG_MS)
    idempotent(log, 0, RIGHT_MS)
    log.append([5], now=WRONG_MS, producer_id=8, producer_epoch=0, base_sequence=0)
    assert idempotent(log, 0, WRONG_MS)


@pytest.mark.parametrize("stop", ["close", "crash", None])
def test_a_producer_is_known_after_a_clock_that_was_ahead(make_log, stop):
    """A clock that leaps forgets nobody, and one that goes back keeps nobody for ever."""
    log = make_log().create()
    idempotent(log, 0, RIGHT_MS)
    log.append([5], now=WRONG_MS)
    assert idempotent(log, 0, WRONG_MS)
    idempotent(log, 1, WRONG_MS)
    log.partition.append_clock.note_step_back(RIGHT_MS + 5)
    if stop is not None:
        getattr(log, stop)()
        log.open(RIGHT_MS + 5)
    assert idempotent(log, 1, RIGHT_MS + 5)
    log.partition.retainer.apply_retention(RIGHT_MS + 5 + 86_400_000 - 1)
    assert idempotent(log, 1, RIGHT_MS + 86_400_004)
    log.partition.retainer.apply_retention(RIGHT_MS + 86_400_005)
    assert idempotent(log, 1, RIGHT_MS + 10)  # the clock has gone back, and it is not read yet
    assert not idempotent(log, 7, RIGHT_MS + 86_400_005)  # expired, so any sequence may come


@pytest.mark.parametrize("stop", ["close", "crash", None])
def test_a_producer_is_known_after_a_clock_that_was_behind(make_log, stop):
    log = make_log().create()
    idempotent(log, 0, 50)
    late = RIGHT_MS + 86_400_000
    log.partition.append_clock.note_step_forward(
        ForwardStep(0, 100, late, late + 100), "a clock", 1
    )
    if stop is not None:
        getattr(log, stop)()
        log.open(late + 100)
    log.partition.retainer.apply_retention(late + 100)
    assert idempotent(log, 0, late + 100)


@pytest.mark.parametrize("stop", ["close", "crash", None])
def test_a_producer_is_known_after_a_clock_that_went_back_until_a_restart(make_log, stop):
    """A snapshot has the time of the step back, which is that of the clock that was behind."""
    log = make_log().create()
    idempotent(log, 0, WRONG_MS)
    log.partition.append_clock.note_step_back(50)
    late = WRONG_MS + 50
    if stop is not None:
        getattr(log, stop)()
        log.open(100)
    log.partition.append_clock.note_step_forward(ForwardStep(40, 100, WRONG_MS, late), "a clock", 1)
    log.partition.retainer.apply_retention(late)
    assert idempotent(log, 0, late)
    log.partition.retainer.apply_retention(late + 86_400_000)
    assert not idempotent(log, 7, late + 86_400_000)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_producer_whose_batches_are_gone_is_known_after_a_correction(make_log, is_stopped):
    log = make_log().create()
    idempotent(log, 0, WRONG_MS)
    log.partition.begin_segment_at_next_append()
    log.append([5], now=WRONG_MS)
    log.partition.append_clock.note_step_back(50)
    log.partition.retainer.delete_records_before(1)
    log.partition.retainer.apply_retention(50)
    if is_stopped:
        log.close()
        log.open(100)
    assert [segment.base_offset for segment in log.partition.segments] == [1]
    late = WRONG_MS + 50
    log.partition.append_clock.note_step_forward(ForwardStep(40, 100, WRONG_MS, late), "a clock", 1)
    log.partition.retainer.apply_retention(late)
    assert idempotent(log, 0, late)
