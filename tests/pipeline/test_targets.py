"""What a target topic takes: its window of times, open where no limit is set."""

import pytest

from tidelog.pipeline.replay.targets import NO_LIMIT, TargetTopic, as_made

FIRST, LAST = -(2**63), 2**63 - 1
NOW_MS = 1_700_000_000_000


def target(before_ms=NO_LIMIT, after_ms=NO_LIMIT, *, is_stamped=False):
    return TargetTopic("t", 1, is_stamped, before_ms, after_ms, 1_000_000, {})


@pytest.mark.parametrize(
    ("topic", "window"),
    [
        (target(), (FIRST, LAST)),
        (target(1000, 2000), (NOW_MS - 1000, NOW_MS + 2000)),
        (target(0, 0), (NOW_MS, NOW_MS)),
        (target(NO_LIMIT - 1), (NOW_MS - NO_LIMIT + 1, LAST)),
        (target(1000, 2000, is_stamped=True), (FIRST, LAST)),
    ],
)
def test_the_window(topic, window):
    assert topic.window(NOW_MS) == window


@pytest.mark.parametrize(
    ("settings", "oldest_ms"),
    [
        ({}, NOW_MS - 50),
        ({"message.timestamp.before.max.ms": "20"}, NOW_MS - 20),
        ({"retention.ms": "-1"}, FIRST),
        ({"retention.time.basis": "append"}, FIRST),
        ({"retention.min.append.ms": "1"}, FIRST),
        ({"cleanup.policy": "compact"}, FIRST),
        ({"retention.refuse.expired": "false"}, FIRST),
    ],
)
def test_the_window_where_the_target_refuses_what_has_expired(settings, oldest_ms):
    made = as_made("t", 1, {"retention.refuse.expired": "true", "retention.ms": "50", **settings})
    assert made.window(NOW_MS) == (oldest_ms, LAST)
    if oldest_ms != FIRST:
        is_refusal = oldest_ms == NOW_MS - 50
        assert ("retention.refuse.expired" in made.before_setting) is is_refusal
