"""The rules of the home of time, one by one, at the edges of an int64."""

from dataclasses import replace

import pytest

from tidelog.config.topic import TopicConfig
from tidelog.storage.time.append_time import append_time
from tidelog.storage.time.lookup import is_target, reaches
from tidelog.storage.time.retention import expired
from tidelog.storage.time.stamping import (
    StampingRules,
    Stamps,
    reported,
    rules_of,
    stamps_at,
    why_too_old,
)
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, exceeds, or_none


def test_append_time_follows_the_clock_but_never_goes_back():
    assert append_time(None, -5) == -5
    assert append_time(1000, 1001) == 1001
    assert append_time(1000, 1000) == 1000
    assert append_time(1000, 400) == 1000


@pytest.mark.parametrize("magic", [1, 2])
def test_rules_come_from_the_settings(magic):
    assert rules_of(TopicConfig(), magic) == StampingRules(False, None, None)
    config = TopicConfig(message_timestamp_before_max_ms=5, message_timestamp_after_max_ms=7)
    assert rules_of(config, magic) == StampingRules(False, 5, 7)
    config = TopicConfig(message_timestamp_difference_max_ms=9)
    assert rules_of(config, magic) == StampingRules(False, 9, 9)
    config = TopicConfig(message_timestamp_difference_max_ms=9, message_timestamp_after_max_ms=1)
    assert rules_of(config, magic) == StampingRules(False, 9, 1)


def test_refusing_what_is_expired_bounds_the_window_by_retention():
    config = TopicConfig(retention_refuse_expired=True, retention_ms=50)
    assert rules_of(config, 2) == StampingRules(False, 50, None)
    assert "retention.ms=50" in why_too_old(config, rules_of(config, 2))
    tighter = replace(config, message_timestamp_before_max_ms=5)
    assert rules_of(tighter, 2) == StampingRules(False, 5, None)
    assert not why_too_old(tighter, rules_of(tighter, 2))
    for change in (
        {"retention_refuse_expired": False},
        {"retention_ms": -1},
        {"retention_ms": MAX_TIMESTAMP},
        {"retention_time_basis": "append"},
        {"retention_min_append_ms": 1},
        {"cleanup_policy": ("compact",)},
    ):
        kept = replace(config, **change)
        assert rules_of(kept, 2) == StampingRules(False, None, None)
        assert not why_too_old(kept, rules_of(kept, 2))
    assert rules_of(config.without_window(), 2) == StampingRules(False, None, None)


def test_a_log_append_time_topic_has_no_window():
    config = TopicConfig(
        message_timestamp_type="LogAppendTime", message_timestamp_difference_max_ms=9
    )
    assert rules_of(config, 2) == StampingRules(True, None, None)
    assert rules_of(config, 0) == StampingRules(True, None, None)


def test_format_0_has_no_window():
    assert rules_of(TopicConfig(message_timestamp_difference_max_ms=9), 0) == StampingRules(
        False, None, None
    )


@pytest.mark.parametrize(
    ("before", "after", "now", "window"),
    [
        (None, None, 1000, (MIN_TIMESTAMP, MAX_TIMESTAMP)),
        (0, 0, 1000, (1000, 1000)),
        (500, None, 1000, (500, MAX_TIMESTAMP)),
        (None, 500, 1000, (MIN_TIMESTAMP, 1500)),
        (5000, 5000, 1000, (-4000, 6000)),
        (MAX_TIMESTAMP, MAX_TIMESTAMP, 1000, (1000 - MAX_TIMESTAMP, MAX_TIMESTAMP)),
        (MAX_TIMESTAMP, 1, -1000, (MIN_TIMESTAMP, -999)),
        (1, MAX_TIMESTAMP, MAX_TIMESTAMP, (MAX_TIMESTAMP - 1, MAX_TIMESTAMP)),
    ],
)
def test_the_window_lies_around_the_clock_and_stays_within_an_int64(before, after, now, window):
    stamps = stamps_at(StampingRules(False, before, after), None, now)
    assert (stamps.min_timestamp, stamps.max_timestamp) == window


def test_the_window_does_not_follow_an_append_time_that_is_ahead():
    stamps = stamps_at(StampingRules(False, 10, 10), 9_000, 1000)
    assert stamps == Stamps(9_000, False, 990, 1010)


def test_what_the_producer_is_told():
    assert reported(Stamps(1000, True, 0, 0)) == 1000
    assert reported(Stamps(1000, False, 0, 0)) == -1


def test_missing_times_are_never_the_largest():
    assert or_none(-1) is None
    assert or_none(-2) == -2
    assert not exceeds(None, None)
    assert not exceeds(None, -5)
    assert exceeds(-5, None)
    assert not exceeds(-5, -5)
    assert exceeds(MIN_TIMESTAMP, None)
    assert reaches(-5, -5)
    assert not reaches(-6, -5)
    assert not reaches(None, MIN_TIMESTAMP)


def test_six_milliseconds_are_special_and_the_rest_is_time():
    assert [t for t in range(-10, 3) if is_target(t)] == [-6, -5, -4, -3, -2, -1]


def test_expiry_counts_from_the_append():
    assert not expired(1000, 1999, 1000)
    assert expired(1000, 2000, 1000)
    assert not expired(1000, 500, 1000)
