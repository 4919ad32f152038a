"""When a segment ends because of time, as a function of times alone."""

import pytest

from tidelog.config.topic import TopicConfig
from tidelog.storage.time.rolling import Rolling, rolling_of, rolls_from, should_roll
from tidelog.storage.time.segment_times import SegmentTimes

SPAN, INTERVAL, YEARS = 1_000, 10, 10**12


def segment(first=None, created=None, clock=None):
    times = SegmentTimes()
    times.first, times.created, times.created_clock = first, created, clock
    return times


@pytest.mark.parametrize(
    ("times", "largest", "appended", "now", "expected"),
    [
        # the record times, neither later than the append times
        (segment(100, 5_000, 5_000), 1_100, 5_500, 5_500, False),
        (segment(100, 5_000, 5_000), 1_101, 5_500, 5_500, True),
        (segment(4_800, 5_000, 5_000), YEARS, 5_800, 5_800, False),
        (segment(4_800, 5_000, 5_000), YEARS, 5_801, 5_801, True),
        (segment(YEARS, 5_000, 5_000), 6_000, 6_000, 6_000, False),
        (segment(YEARS, 5_000, 5_000), 6_001, 6_001, 6_001, True),
        # the age by append time, whatever the record times say
        (segment(100, 5_000, 5_000), 100, 6_000, 6_000, False),
        (segment(100, 5_000, 5_000), 100, 6_001, 6_001, True),
        (segment(100, 5_000, 5_000), -(2**63), 6_001, 6_001, True),
        (segment(None, 5_000, 5_000), None, 6_001, 6_001, True),
        (segment(100, 5_000, 5_000), None, 5_999, 5_999, False),
        # the age by the clock, while append times stand still
        (segment(100, 5_000, 2_000), 100, 5_000, 3_000, False),
        (segment(100, 5_000, 2_000), 100, 5_000, 3_001, True),
        (segment(100, 5_000, 2_000), 100, 5_000, 1_000, False),
        (segment(100, 5_000, None), 100, 6_001, 6_001, True),
        (segment(100, None, 2_000), 100, 3_001, 3_001, True),
        # neither before it is old enough
        (segment(100, 5_000, 5_000), 4_000, 5_009, 5_009, False),
        (segment(100, 5_000, 5_000), 4_000, 5_010, 5_010, True),
        (segment(100, 5_000, 4_995), 4_000, 5_000, 5_005, True),
        # an empty one
        (segment(), YEARS, YEARS, YEARS, False),
    ],
)
def test_when_a_segment_ends(times, largest, appended, now, expected):
    assert should_roll(times, largest, appended, now, SPAN, INTERVAL) is expected


def test_from_the_moment_foretold_any_append_ends_it_and_none_must_before():
    rolling = Rolling("segment.ms", SPAN, INTERVAL)
    for times in (
        segment(YEARS, 5_000, 5_000),
        segment(YEARS, 5_000, 2_000),
        segment(None, 5_000, None),
        segment(None, None, 3_000),
    ):
        moment = rolls_from(times, rolling)
        for now, expected in ((moment - 1, False), (moment, True)):
            appended = max(now, times.created or 0)
            assert should_roll(times, None, appended, now, SPAN, INTERVAL) is expected
    assert rolls_from(segment(), rolling) is None
    late = Rolling("segment.ms", 5, 500)
    assert rolls_from(segment(None, 100, 100), late) == 600
    assert not should_roll(segment(None, 100, 100), None, 599, 599, 5, 500)
    assert should_roll(segment(None, 100, 100), None, 600, 600, 5, 500)


def test_the_setting_that_decides_is_named():
    compacted = {"cleanup_policy": ("compact",), "segment_ms": 500}
    assert rolling_of(TopicConfig(**compacted, max_compaction_lag_ms=100)) == (
        "max.compaction.lag.ms",
        100,
        10_000,
    )
    assert rolling_of(TopicConfig(**compacted)).setting == "segment.ms"
    assert rolling_of(TopicConfig(segment_ms=500, max_compaction_lag_ms=100)).segment_ms == 500
