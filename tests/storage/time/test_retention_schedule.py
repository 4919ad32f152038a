"""The schedule of retention judges no more segments than it is asked for, and reads no more times."""

from __future__ import annotations

import random

import pytest

from tidelog.storage.time.retention import (
    BY_EVENT_TIME,
    BY_SIZE,
    BY_START,
    BY_TIME,
    Candidate,
    Retention,
    oldest_kept,
    retention_schedule,
    segments_to_delete,
)
from tidelog.storage.time.segment_times import SegmentTimes

NOW = 10_000


class Log:
    """Segments of 10 records and 100 bytes, that remember whose times were read."""

    def __init__(self, appended):
        self.read = []
        self.candidates = [
            Candidate(10 * (number + 1), 100, self._reader(number, time))
            for number, time in enumerate(appended)
        ]

    def _reader(self, number, time):
        times = SegmentTimes()
        if time is not None:
            times.note(time, time, 0, False, time, time)
        times.note_append(NOW - 1_000)

        def read():
            self.read.append(number)
            return times

        return read

    def judged(self, function, retention, **changes):
        given = {
            "now_ms": NOW,
            "log_start_offset": 0,
            "high_watermark": 10 * len(self.candidates),
            "max_event_time": NOW,
        }
        return function(self.candidates, retention, **{**given, **changes})


def rules(retention_ms=None, retention_bytes=None, event_ms=None):
    return Retention(retention_ms, retention_bytes, False, event_ms, 0)


def test_no_segment_behind_the_first_that_stays_is_read():
    log = Log([1_000, 2_000, NOW, 1_000, 1_000])
    assert log.judged(segments_to_delete, rules(retention_ms=5_000)) == [BY_TIME] * 2
    assert set(log.read) == {0, 1, 2}


def test_a_segment_that_size_or_the_log_start_deletes_is_not_read():
    log = Log([NOW] * 5)
    found = log.judged(segments_to_delete, rules(5_000, 200, event_ms=5_000), log_start_offset=20)
    assert found == [BY_START, BY_START, BY_SIZE]
    assert set(log.read) == {3}


def test_the_oldest_segment_is_judged_alone():
    log = Log([1_000] * 5)
    oldest = next(log.judged(retention_schedule, rules(retention_ms=20_000)))
    assert (oldest.policy, oldest.due_ms) == (BY_TIME, 21_001)
    assert set(log.read) == {0}


@pytest.mark.parametrize("seed", range(20))
def test_waits_do_not_depend_on_the_order_in_which_they_are_asked_for(seed):
    pick = random.Random(seed)
    log = Log([pick.choice([None, None, 1_000, 9_000]) for _ in range(12)])
    retention, high_watermark = rules(event_ms=3_000), pick.choice([60, 120])

    def schedule():
        return log.judged(retention_schedule, retention, high_watermark=high_watermark)

    in_order = [tuple(segment.waits()) for segment in schedule()]
    later = list(schedule())
    numbers = list(range(12))
    pick.shuffle(numbers)
    assert {n: tuple(later[n].waits()) for n in numbers} == dict(enumerate(in_order))


def test_the_first_of_two_policies_that_are_due_deletes():
    log = Log([1_000, 1_000])
    retention = rules(retention_ms=5_000, event_ms=5_000)
    assert log.judged(segments_to_delete, retention) == [BY_TIME] * 2
    assert log.judged(segments_to_delete, rules(event_ms=5_000)) == [BY_EVENT_TIME] * 2


@pytest.mark.parametrize("now", [-100, 0, 10_000])
def test_the_oldest_time_kept_is_the_smallest_that_retention_does_not_delete(now):
    kept = oldest_kept(5_000, now)
    for time, policies in ((kept, []), (kept - 1, [BY_TIME])):
        log = Log([time])
        assert log.judged(segments_to_delete, rules(retention_ms=5_000), now_ms=now) == policies
    assert oldest_kept(-1, now) == -(2**63)
    assert oldest_kept(2**63 - 1, now) >= -(2**63)
