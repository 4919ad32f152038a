"""Replication quotas: the rate is Kafka's, and what may move follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.partitions.replication.quota import UNLIMITED, ByteRate, ReplicationQuota
from tidelog.config.replication_quota import parse_throttled_replicas

VECTORS = Path(__file__).parents[3] / "vectors/kafka-3.9.1/byte_rates.tsv"


def test_before_a_window_is_over_its_bytes_count_as_those_of_a_whole_one():
    rate = ByteRate(1000, 11)
    assert rate.per_second(0) == 0
    rate.record(500, 0)
    assert [rate.per_second(now_ms) for now_ms in (0, 999, 1000, 2000)] == [500, 500, 500, 250]


def test_bytes_count_for_all_windows_and_then_no_more():
    rate = ByteRate(1000, 3)
    for second in range(10):
        rate.record(100, second * 1000)
    assert rate.per_second(9000) == 300 * 1000 / 2000  # the windows that began at 7, 8 and 9 s
    assert rate.per_second(9999) == pytest.approx(300 * 1000 / 2999)
    assert rate.per_second(12_000) == 0


def test_the_rate_is_that_of_kafkas_own_class():
    """Captured from SimpleRate of kafka-clients 3.9.1: bytes are recorded, or the rate is measured."""
    rows = [line.split("\t") for line in VECTORS.read_text().splitlines() if line[0] != "#"]
    rates: dict[str, ByteRate] = {}
    measured = 0
    for run, windows, now_ms, size, expected in rows:
        rate = rates.setdefault(run, ByteRate(1000, int(windows)))
        if size:
            rate.record(int(size), int(now_ms))
        else:
            measured += 1
            assert rate.per_second(int(now_ms)) == pytest.approx(float(expected)), (run, now_ms)
    assert measured > 30


def test_the_wait_is_as_long_as_the_rate_is_above_the_limit():
    quota = ReplicationQuota(1000, 11)
    quota.limit = 1000
    quota.record(1000, 0)
    assert not quota.is_exceeded(0)
    quota.record(1000, 0)
    assert quota.wait_ms(0) == 1000
    assert quota.is_exceeded(1999)
    assert not quota.is_exceeded(2000)


def test_a_quota_of_nothing_lets_a_fetch_pass_now_and_then():
    """Kafka's quota of 0 is not exceeded before anything was counted."""
    quota = ReplicationQuota(1000, 11)
    quota.limit = 0
    assert not quota.is_exceeded(0)
    quota.record(1, 0)
    assert quota.wait_ms(0) == 11_000
    assert not quota.is_exceeded(11_000)


def test_without_a_rate_nothing_is_held_back_but_the_bytes_are_counted():
    quota = ReplicationQuota(1000, 11)
    assert quota.limit == UNLIMITED
    quota.record(10**12, 0)
    assert not quota.is_exceeded(0)
    assert quota.per_second(0) == 10**12


def test_which_partitions_are_throttled():
    quota = ReplicationQuota(1000, 11)
    quota.throttled = {"some": frozenset({1, 3}), "all": None}
    throttled = [(name, index) for name in ("some", "all", "none") for index in range(4)]
    assert [each for each in throttled if quota.is_throttled(*each)] == [
        ("some", 1),
        ("some", 3),
        *(("all", index) for index in range(4)),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 5000)), max_size=40),
    st.integers(0, 3000),
    st.integers(1, 12),
)
def test_the_wait_says_whether_the_quota_is_exceeded_and_ends(steps, limit, windows):
    quota = ReplicationQuota(1000, windows)
    quota.limit = limit
    now_ms = 0
    for passed_ms, size in steps:
        now_ms += passed_ms
        quota.record(size, now_ms)
    wait_ms = quota.wait_ms(now_ms)
    assert (wait_ms > 0) == quota.is_exceeded(now_ms) == (quota.per_second(now_ms) > limit)
    assert wait_ms <= windows * 1000
    assert not quota.is_exceeded(now_ms + windows * 1000)


@pytest.mark.parametrize("text", ["0:1,1", "*,0:1", "0:one"])
def test_what_is_no_list_of_throttled_replicas(text):
    with pytest.raises(ValueError, match=r"expected \* or a list of replicas"):
        parse_throttled_replicas(text)
