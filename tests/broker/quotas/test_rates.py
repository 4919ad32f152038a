"""Rates and tokens are Kafka's, and so are the times that clients wait."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.broker.quotas.rates import Rate, TokenBucket, Windows

VECTORS = Path(__file__).parents[2] / "vectors/kafka-3.9.1"
KAFKAS = Windows()


def rows(name):
    lines = (VECTORS / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_who_begins_is_divided_by_ten_seconds():
    rate = Rate(KAFKAS)
    assert rate.wait_ms(100, 0) == 0
    rate.record(1000, 0)
    assert (rate.per_second(0), rate.wait_ms(100, 0)) == (100, 0)
    rate.record(500, 0)
    assert (rate.per_second(0), rate.wait_ms(100, 0)) == (150, 5000)


def test_what_is_taken_back_does_not_count():
    rate = Rate(KAFKAS)
    rate.record(5000, 0)
    rate.record(-5000, 10)
    assert rate.per_second(10) == 0
    assert rate.is_idle(10)


def test_what_was_long_ago_does_not_count():
    rate = Rate(KAFKAS)
    rate.record(5000, 0)
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)


def test_rates_and_waits_are_those_of_kafkas_own_classes():
    """Captured from Rate of 3.9.1: sizes are recorded, or the rate is measured."""
    rates: dict[str, Rate] = {}
    measured = 0
    for run, windows, limit, now_ms, size, expected, wait_ms in rows("quota_rates.tsv"):
        rate = rates.setdefault(run, Rate(Windows(int(windows))))
        if size:
            rate.record(float(size), int(now_ms))
            continue
        measured += 1
        assert rate.per_second(int(now_ms)) == pytest.approx(float(expected)), (run, now_ms)
        assert rate.wait_ms(float(limit), int(now_ms)) == int(wait_ms), (run, now_ms)
    assert measured > 30


def test_tokens_are_those_of_kafkas_own_class():
    """Captured from TokenBucket of 3.9.1."""
    buckets: dict[str, TokenBucket] = {}
    measured = 0
    for run, windows, limit, now_ms, taken, expected in rows("quota_tokens.tsv"):
        bucket = buckets.setdefault(run, TokenBucket(Windows(int(windows))))
        if taken:
            bucket.record(float(taken), float(limit), int(now_ms))
            continue
        measured += 1
        assert bucket.remaining(float(limit), int(now_ms)) == pytest.approx(float(expected))
    assert measured > 30


def test_tokens_may_be_overdrawn_and_come_back():
    bucket = TokenBucket(KAFKAS)
    assert bucket.remaining(2, 5) == 22
    bucket.record(30, 2, 5)
    assert bucket.wait_ms(2, 5) == 4000
    assert bucket.wait_ms(2, 4005) == 0
    assert bucket.remaining(2, 10**9) == 22


@pytest.mark.parametrize("limit", [1_000, 2_000_000])
def test_a_client_that_waits_as_told_takes_what_it_may(limit):
    """A manual clock: requests of any size, as fast as the waits allow, over ten minutes."""
    chance = random.Random(limit)
    rate, now_ms, taken = Rate(KAFKAS), 0, 0
    while now_ms < 600_000:
        size = chance.randrange(1, limit)
        rate.record(size, now_ms)
        taken += size
        now_ms += rate.wait_ms(limit, now_ms) or chance.randrange(5)
    assert taken * 1000 / now_ms == pytest.approx(limit, rel=0.05)
