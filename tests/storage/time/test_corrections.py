"""Corrections of append times: records count as written when they were, or later, never earlier."""

from __future__ import annotations

import random

from tidelog.storage.time.corrections import (
    ClockHistory,
    Correction,
    ForwardStep,
    after_step_back,
    after_step_forward,
    changes_at,
    corrections_within,
    is_behind,
    judged,
    judged_times,
    pending_steps,
    step_back,
    with_deleted,
    with_step,
)
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.trusted_clock import corrected_time

_YEAR = 365 * 86_400_000


def test_a_clock_that_was_ahead_counts_as_corrected_then() -> None:
    corrections = after_step_back((), 10, 1000)
    assert [judged(corrections, 9, t) for t in (500, 1000, 9000)] == [500, 1000, 1000]
    assert judged(corrections, 10, 9000) == 9000


def test_times_in_a_record_are_changed_by_the_corrections_of_its_offset() -> None:
    back, forward = step_back(10, 500), Correction(5, 20, 100, 200, 1_000, 1_150)
    assert changes_at((back, forward), 3) == [ForwardStep(*back[2:])]
    assert changes_at((back, forward), 7) == [ForwardStep(*back[2:]), ForwardStep(*forward[2:])]
    assert changes_at((back, forward), 12) == [ForwardStep(100, 200, 1_000, 1_150)]
    # A time that was read while the clock was behind may stand in a record that came after that was noted.
    assert changes_at((back, forward), 20) == [ForwardStep(100, 200, 1_000, 1_150)]
    assert corrected_time(ForwardStep(*back[2:]), 700) == 500


def test_a_clock_that_was_behind_counts_as_much_later_as_it_was_behind() -> None:
    corrections = after_step_forward((), 10, ForwardStep(100, 300, 5000, 5400))
    assert [judged(corrections, 9, t) for t in (99, 100, 300, 301)] == [99, 5100, 5300, 5301]
    # An append time stands still for up to ten seconds: the clock had not reached it yet.
    assert [judged(corrections, 9, t) for t in (10_300, 10_301)] == [5400, 10_301]
    assert judged(corrections, 10, 200) == 200


def test_a_log_that_has_missed_many_steps_counts_what_the_first_concerned_as_later() -> None:
    history, first = ClockHistory("a clock"), ForwardStep(100, 200, 5_000, 5_250)
    history = with_step(history, first)
    for at_ms in range(10_000, 10_000 + 100 * 50, 100):
        history = with_step(history, ForwardStep(at_ms, at_ms + 10, 20, at_ms + 50))
    assert (len(history.steps), history.steps[-1][0]) == (32, 51)
    corrections: tuple[Correction, ...] = ()
    for _, step in pending_steps(history, "", 0):
        corrections = after_step_forward(corrections, 10, step)
    assert judged(corrections, 5, 150) >= 5_150


def test_records_before_a_dip_keep_their_times_after_it() -> None:
    dip = after_step_back((), 10, 50)  # at 1000, the clock went back to 50
    assert judged(dip, 5, 900) == 50
    after = after_step_forward(dip, 20, ForwardStep(40, 250, 950, 1200))
    assert [judged(after, 5, t) for t in (900, 990, 9000)] == [900, 990, 1000]
    assert [judged(after, 15, t) for t in (50, 250)] == [1000, 1200]


def test_a_correction_after_truncation_and_deletion_ends_with_the_log() -> None:
    corrections = (Correction(0, 10, 5, 5, 0, 5), Correction(10, 30, 6, 6, 1, 7))
    assert corrections_within(corrections, 10, 20) == (Correction(10, 20, 6, 6, 1, 7),)


def test_many_corrections_are_joined_and_count_no_record_as_written_earlier() -> None:
    randomness = random.Random(5)
    for _ in range(200):
        exact: tuple[Correction, ...] = ()
        joined: tuple[Correction, ...] = ()
        now = 1_000_000
        times = []
        for offset in range(1, 61):
            times.append(now)
            if randomness.random() < 0.5:
                now -= randomness.randrange(20_000)
                joined = after_step_back(joined, offset, now)
                exact = (*exact, after_step_back((), offset, now)[0])
            else:
                shift = randomness.randrange(20_000)
                step = ForwardStep(now - 5, now, shift, now + shift)
                now += shift
                joined = after_step_forward(joined, offset, step)
                exact = _exact_forward(exact, offset, step)
        assert len(joined) <= 32
        for at, time in enumerate(times):
            assert judged(joined, at, time) >= judged(exact, at, time)


def _exact_forward(
    corrections: tuple[Correction, ...], end_offset: int, step: ForwardStep
) -> tuple[Correction, ...]:
    last = after_step_forward(corrections[-31:], end_offset, step)
    return (*corrections[:-31], *last)


def test_times_of_a_segment_count_as_late_as_any_of_its_records() -> None:
    randomness = random.Random(9)
    for _ in range(2000):
        records = sorted(randomness.randrange(100, 1000) for _ in range(5))
        times, rows = SegmentTimes(), []
        for append_time in records:
            record = randomness.choice([None, randomness.randrange(2000)])
            limit = append_time + 50
            times.note(record, record, 0, record is None, append_time, limit)
            times.note_append(append_time, append_time)
            rows.append((record, append_time))
        if randomness.random() < 0.5:
            corrections = after_step_back((), 5, randomness.randrange(1000))
        else:
            since = randomness.randrange(1000)
            until, shift = since + randomness.randrange(500), randomness.randrange(5000)
            step = ForwardStep(since, until, shift, until + shift)
            corrections = after_step_forward((), 5, step)
        result = judged_times(times, corrections, 0, 5, 50)
        real = [judged(corrections, 0, t) for _, t in rows]
        assert result.last_append is not None
        assert result.last_append >= max(real)
        if all(each != append_time for each, append_time in zip(real, records, strict=True)):
            assert result.last_append == max(real)
        aging = max(t if r is None else min(r, t) for (r, _), t in zip(rows, real, strict=True))
        assert result.aging is not None
        assert result.aging >= aging
        events = [min(r, t + 50) for (r, _), t in zip(rows, real, strict=True) if r is not None]
        if events:
            assert result.event is not None
            assert result.event >= max(events)
        if max(real) < records[-1]:
            assert result.aging == aging


def test_times_of_a_segment_that_several_corrections_concern_in_part() -> None:
    randomness = random.Random(11)
    for _ in range(3000):
        corrections: tuple[Correction, ...] = ()
        times, rows, now = SegmentTimes(), [], 1_000_000
        for offset in range(30):
            now += randomness.randrange(40)
            if randomness.random() < 0.1:
                shift = randomness.randrange(1, 30_000)
                since = now - randomness.randrange(400)
                step = ForwardStep(since, now, shift, now + shift)
                corrections, now = after_step_forward(corrections, offset, step), now + shift
            if 10 <= offset < 20:
                record = randomness.choice([None, randomness.randrange(2_000_000)])
                times.note(record, record, offset, record is None, now, now + 50)
                times.note_append(now, now)
                rows.append((offset, record, now))
        result = judged_times(times, corrections, 10, 20, 50)
        real = [judged(corrections, offset, t) for offset, _, t in rows]
        assert result.created is not None
        assert result.created <= real[0]
        assert result.last_append is not None
        assert result.last_append >= max(real)
        assert result.aging is not None
        assert result.aging >= max(
            t if record is None else min(record, t)
            for (_, record, _), t in zip(rows, real, strict=True)
        )


def test_the_steps_of_a_clock_that_a_log_has_not_taken_into_account() -> None:
    step = ForwardStep(0, 1, 2, 3)
    history = ClockHistory("a clock", ((1, step), (2, step)))
    assert pending_steps(history, "a clock", 2) == ()
    assert pending_steps(history, "a clock", 1) == ((2, step),)
    assert pending_steps(history, "another", 2) == history.steps


def test_after_two_dips_only_what_was_written_since_the_second_is_shifted() -> None:
    dips = after_step_back(after_step_back((), 10, 100_000), 20, 50_000)
    step = ForwardStep(50_000, 250_000, 950_000, 1_200_000)
    after = after_step_forward(dips, 30, step)
    assert [judged(after, 15, t) for t in (55_000, 100_000)] == [55_000, 100_000]
    assert judged(after, 25, 55_000) == 1_005_000
    assert after_step_forward(dips, 20, step)[2:] == ()


def test_a_follower_keeps_the_corrections_of_what_only_its_leader_has_deleted() -> None:
    both = after_step_back(after_step_back((), 10, 100_000), 20, 50_000)
    assert with_deleted(both, both[1:], 10) == both  # before what the leader still says
    assert with_deleted(both, both, 20) == both
    assert with_deleted(both, (), 19) == both[:1]  # the next leader never heard of the other one
    many = tuple(step_back(offset, offset) for offset in range(1, 33))
    after = with_deleted(many[:2], many[2:] + both[1:], 2)
    assert (len(after), after[0].end_offset, after[1:]) == (32, 2, many[2:] + both[1:])


def test_a_segment_without_a_correction_keeps_its_times() -> None:
    times = SegmentTimes()
    times.note_append(500, 500)
    corrections = after_step_back((), 10, 100)
    assert judged_times(times, corrections, 10, 20, 0) is times
    assert judged_times(times, corrections, 5, 20, 0) is times


def test_small_steps_back_are_no_correction() -> None:
    assert not is_behind(None, 0)
    assert not is_behind(10_000, 0)
    assert is_behind(10_001, 0)
