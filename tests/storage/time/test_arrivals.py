"""Arrivals count what a plain recount of all appends counts, and say the same of each of them.

The recount knows no usual case and remembers nothing but the appends so far. With a mistake injected in
what it is compared to, the comparison fails.
"""

import random
from dataclasses import replace

import pytest

from tests.time_rules import time_rules
from tidelog.config import TopicConfig
from tidelog.protocol.records.plan import PreparedBatch
from tidelog.storage.time.arrivals import (
    DELAYS_MS,
    LATENESS_MS,
    Arrivals,
    TimeAnomaly,
    expected_of,
    find_unit_mismatch,
)
from tidelog.storage.time.timestamp import MAX_TIMESTAMP

NOW_MS = 1_767_225_600_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
YEAR_MS = 365 * DAY_MS
SEEDS = range(60)


def batch(first, largest, count, has_missing):
    return PreparedBatch(
        0, 70, 0, count - 1, count, largest, count - 1, first, has_missing, -1, -1, -1, False, False
    )


def some_config(random):
    return TopicConfig(
        retention_ms=random.choice([-1, HOUR_MS, 7 * DAY_MS, 2**63 - 1]),
        retention_time_basis=random.choice(["record", "record", "append"]),
        retention_max_eventtime_ms=random.choice([-1, HOUR_MS, 7 * DAY_MS]),
        event_time_ahead_max_ms=random.choice([HOUR_MS, 5_000]),
    )


def some_time(random, now_ms):
    return random.choice(
        (
            now_ms - random.randrange(20),
            now_ms - random.randrange(20),
            now_ms - random.randrange(2 * HOUR_MS),
            now_ms - random.randrange(60 * DAY_MS),
            now_ms - random.randrange(80 * YEAR_MS),
            now_ms + random.randrange(2 * HOUR_MS),
            now_ms // 1_000,
            now_ms * 1_000,
            random.choice((-(2**63), 2**63 - 1, 0, -2)),
        )
    )


TEN_YEARS_MS = 315_576_000_000


class Recount:
    """The same from the rules as they are told, one append at a time."""

    def __init__(self):
        self.delays = [0] * (len(DELAYS_MS) + 1)
        self.lateness = [0] * (len(LATENESS_MS) + 1)
        self.longest_delay_ms = None
        self.late_batches = self.late_records = self.most_late_ms = self.timeless_batches = 0
        self.reached = None

    def note(self, config, each, append_ms, now_ms):
        if each.largest is None:
            self.timeless_batches += 1
            return None
        self.delays[sum(bound < append_ms - each.first for bound in DELAYS_MS)] += 1
        unit_mismatch = find_unit_mismatch(each.largest, now_ms) or find_unit_mismatch(
            each.first, now_ms
        )
        delay_ms = append_ms - each.first
        if unit_mismatch is None and delay_ms <= TEN_YEARS_MS:
            self.longest_delay_ms = max(delay_ms, self.longest_delay_ms or 0)
        if self.reached is not None and each.first < self.reached:
            late_ms = self.reached - each.first
            self.late_batches += 1
            self.late_records += each.count
            self.lateness[sum(bound < late_ms for bound in LATENESS_MS)] += 1
            if unit_mismatch is None and late_ms <= TEN_YEARS_MS:
                self.most_late_ms = max(self.most_late_ms, late_ms)
        odd = self._odd(config, each, append_ms, now_ms, unit_mismatch)
        counted = min(each.largest, append_ms + config.event_time_ahead_max_ms)
        self.reached = counted if self.reached is None else max(self.reached, counted)
        return odd

    def _odd(self, config, each, append_ms, now_ms, unit_mismatch):
        keep_ms, event_ms = config.retention_ms, config.retention_max_eventtime_ms
        if 0 <= keep_ms < 2**63 - 1 and config.retention_time_basis == "record":
            behind_ms = now_ms - min(each.largest, append_ms) - keep_ms
            if behind_ms > 0 and not each.has_missing:
                return TimeAnomaly(each.largest, "retention.ms", keep_ms, behind_ms, unit_mismatch)
        if event_ms >= 0 and self.reached is not None:
            behind_ms = self.reached - each.largest - event_ms
            if behind_ms > 0:
                name = "retention.max.eventtime.ms"
                return TimeAnomaly(each.largest, name, event_ms, behind_ms, unit_mismatch)
        return (
            None if unit_mismatch is None else TimeAnomaly(each.largest, None, 0, 0, unit_mismatch)
        )


def replay(seed):
    """The first difference between arrivals and the recount, None where there is none."""
    chance = random.Random(seed)
    config = some_config(chance)
    arrivals, recount = Arrivals(config), Recount()
    now_ms = append_ms = NOW_MS
    for number in range(150):
        now_ms += chance.choice((0, 0, 1, 1, 50, HOUR_MS, -HOUR_MS // 2))
        append_ms = max(append_ms, now_ms)
        if chance.random() < 0.03:
            config = some_config(chance)
            arrivals.expect(config)
        times = sorted(some_time(chance, now_ms) for _ in range(chance.choice((1, 1, 1, 2))))
        has_missing = chance.random() < 0.1
        first, largest = (None, None) if chance.random() < 0.05 else (times[0], times[-1])
        each = batch(first, largest, chance.randrange(1, 9), has_missing or first is None)
        told = arrivals.note([each], largest, append_ms, now_ms)
        if told != recount.note(config, each, append_ms, now_ms):
            return number, "odd", told
        for name in vars(recount):
            if name != "reached" and getattr(arrivals, name) != getattr(recount, name):
                return number, name, getattr(arrivals, name)
    return None


@pytest.mark.parametrize("seed", SEEDS)
def test_arrivals_are_what_a_recount_counts(seed):
    assert replay(seed) is None


def _believe_any_stamp(monkeypatch):
    monkeypatch.setattr(time_rules, "capped", lambda *_: MAX_TIMESTAMP)


def _forget_the_limit(monkeypatch):
    right = expected_of
    monkeypatch.setattr(
        time_rules, "expected_of", lambda config: right(config)._replace(retention_ms=None)
    )


def _keep_old_settings(monkeypatch):
    expect = Arrivals.expect

    def once(self, config):
        if not hasattr(self, "_expected"):
            expect(self, config)

    monkeypatch.setattr(Arrivals, "expect", once)


def _ignore_event_time(monkeypatch):
    right = expected_of
    monkeypatch.setattr(
        time_rules,
        "expected_of",
        lambda config: right(replace(config, retention_max_eventtime_ms=-1)),
    )


@pytest.mark.parametrize(
    "inject",
    [
        _believe_any_stamp,
        _forget_the_limit,
        _keep_old_settings,
        _ignore_event_time,
    ],
)
def test_an_injected_bug_is_found(monkeypatch, inject):
    inject(monkeypatch)
    assert any(replay(seed) is not None for seed in SEEDS)
