"""Whole logs whose clock jumps about: what retention judges, compared with each record by itself.

A model keeps each record with its times. The log keeps segments, through rolls, clean stops and
crashes.
"""

from __future__ import annotations

import random

import pytest

from tidelog.storage.log.times import judging
from tidelog.storage.time.corrections import ForwardStep, is_behind

_WAIT_MS = 10_000
_SLACK_MS = 3_600_000


class Model:
    """Records as [record time, exact append time, what it counts as]."""

    def __init__(self):
        self.rows = []
        self.last = self.back = None

    def append(self, record_ms, now):
        if self.last is not None and self.last - now > _WAIT_MS:
            self.step_back(now)
        self.last = now if self.last is None else max(self.last, now)
        self.rows.append([record_ms, self.last, self.last])

    def step_back(self, now):
        latest = self.back if self.last is None else self.last
        if latest is not None and latest - now > _WAIT_MS:
            for row in self.rows:
                row[2] = min(row[2], now)
            self.last, self.back = None, now


def agree(log, model):
    state, is_exact = log.partition.state, True
    largest = None
    for segment in log.partition.segments:
        rows = model.rows[segment.base_offset : segment.tail.end_offset]
        exact = [
            log.partition.reader.append_time_of(segment.base_offset + n) for n in range(len(rows))
        ]
        assert exact == [row[1] for row in rows]
        times = judging.judged_times_of(state, segment)
        if not rows:
            continue
        last = max(row[2] for row in rows)
        aging = max(min(row[0], row[2]) for row in rows)
        event = max(min(row[0], row[2] + _SLACK_MS) for row in rows)
        assert times.last_append >= last
        assert times.aging >= aging
        assert times.event >= event
        is_exact = is_exact and (times.last_append, times.aging, times.event) == (
            last,
            aging,
            event,
        )
        largest = event if largest is None else max(largest, event)
    if largest is not None:
        assert state.max_event_time >= largest
    return is_exact


@pytest.mark.parametrize("seed", range(12))
def test_a_clock_that_goes_back_again_and_again(make_log, seed):
    rng = random.Random(seed)
    log, model, now = make_log(segment_bytes=300).create(), Model(), 10**12
    for _ in range(60):
        now += rng.choice([1, 500, 9_000, 3_600_000, -5_000, -9_999, -20_000, -(10**9), 10**9])
        record = now + rng.choice([0, 0, -(10**6), 10**12, 5_000_000])
        kind = rng.random()
        if kind < 0.75:
            if is_behind(log.partition.last_append_time, now):
                log.partition.append_clock.note_step_back(now)
            log.append([record], now=now)
            model.append(record, now)
        elif kind < 0.85:
            log.partition.append_clock.note_step_back(now)
            model.step_back(now)
        else:
            getattr(log, rng.choice(["close", "crash"]))()
            log.open(now)
            model.step_back(now)
        assert agree(log, model), "single records are known here, so nothing counts as later"


@pytest.mark.parametrize("seed", range(12))
def test_a_clock_that_falls_behind_and_is_set_right(make_log, seed):
    """Nothing counts as written earlier than it was, nor as later than the last correction."""
    rng = random.Random(seed)
    log, right = make_log(segment_bytes=300).create(), 10**12
    number, behind_ms, since_ms, rows = 0, 0, 0, []
    for _ in range(80):
        right += rng.choice([1, 500, 3_000, 60_000, 3_600_000])
        kind = rng.random()
        if kind < 0.65:
            record = right + rng.choice([0, 0, -(10**6), 10**12])
            log.append([record], now=right - behind_ms)
            rows.append((record, right))
        elif kind < 0.8 and not behind_ms:
            behind_ms = rng.choice([60_000, 3_600_000, 10**9, 10**11])
            since_ms = right - behind_ms
            log.partition.append_clock.note_step_back(since_ms)
        elif behind_ms:
            number += 1
            step = ForwardStep(since_ms, right - behind_ms, behind_ms, right)
            log.partition.append_clock.note_step_forward(step, "a clock", number)
            behind_ms = 0
        elif kind > 0.9:
            getattr(log, rng.choice(["close", "crash"]))()
            log.open(right)
        if not behind_ms:
            _never_earlier(log, rows, right)


def _never_earlier(log, rows, right):
    for segment in log.partition.segments:
        here = rows[segment.base_offset : segment.tail.end_offset]
        if not here:
            continue
        times = judging.judged_times_of(log.partition.state, segment)
        assert max(written for _, written in here) <= times.last_append <= right + _WAIT_MS
        assert times.aging >= max(min(row) for row in here)
        assert times.event >= max(min(record, written + _SLACK_MS) for record, written in here)
