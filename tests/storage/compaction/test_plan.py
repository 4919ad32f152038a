"""What may be compacted and when it is due: the decisions, one by one."""

import pytest

from tidelog.config.setting import LONG_MAX
from tidelog.config.topic import TopicConfig
from tidelog.storage.compaction import plan
from tidelog.storage.compaction.plan import (
    LAG,
    NOT_SEEN,
    NOTHING,
    RATIO,
    CompactionRules,
    SealedSegment,
    judge,
)
from tidelog.storage.time.rolling import rolling_of
from tidelog.storage.time.segment_times import SegmentTimes


def part(end, size=100, first=0, largest=0, append=None):
    """A sealed segment with one batch, appended when it says it happened unless told."""
    times = SegmentTimes()
    append = largest if append is None else append
    times.note(first, largest, 0, False, append, largest)
    times.note_append(append)
    return SealedSegment(end, size, lambda: times)


def rules(min_lag=0, max_lag=LONG_MAX, ratio=0.5):
    return CompactionRules(min_lag, max_lag, max_lag != LONG_MAX, ratio)


def judged(parts, first_dirty=0, limit=10**9, now=10_000, **settings):
    dirty_section = judge(parts, first_dirty, limit, rules(**settings), now)
    return dirty_section.upper_offset, round(dirty_section.ratio, 2), dirty_section.held_by


def test_nothing_sealed_is_nothing_dirty():
    assert judged([]) == (0, 0.0, NOTHING)
    assert judged([part(10)], first_dirty=10) == (10, 0.0, NOTHING)


@pytest.mark.parametrize(("ratio", "held"), [(0.74, None), (0.75, RATIO), (1, RATIO)])
def test_more_than_the_ratio_is_due(ratio, held):
    parts = [part(10), part(20), part(30), part(40)]
    assert judged(parts, first_dirty=10, ratio=ratio) == (40, 0.75, held)


def test_never_beyond_the_limit():
    parts = [part(10), part(20), part(30)]
    assert judged(parts, limit=29) == (20, 1.0, None)
    assert judged(parts, limit=9) == (0, 0.0, NOT_SEEN)


def test_a_young_segment_holds_what_lies_behind_it():
    parts = [part(10, largest=8_000), part(20, largest=9_500), part(30, largest=0)]
    assert judged(parts, min_lag=1_000) == (10, 1.0, None)
    assert judged(parts, min_lag=500) == (30, 1.0, None), "500 ms old is old enough"
    assert judged(parts, min_lag=501) == (10, 1.0, None)
    assert judged(parts, min_lag=3_000) == (0, 0.0, LAG)


def test_a_record_from_the_future_counts_as_written_when_it_was():
    parts = [part(10, largest=99_000, append=1_000)]
    assert judged(parts, min_lag=9_000) == (10, 1.0, None)
    assert judged(parts, min_lag=9_001) == (0, 0.0, LAG)


def test_what_is_overdue_goes_whatever_the_ratio():
    parts = [part(100, size=10_000), part(110, first=5_000, largest=9_000)]
    assert judged(parts, first_dirty=100, ratio=1, max_lag=5_000)[2] == RATIO
    assert judged(parts, first_dirty=100, ratio=1, max_lag=4_999)[2] is None
    held = judge(parts, 100, 10**9, rules(min_lag=1_001, max_lag=1_000, ratio=1), 10_000)
    assert (held.delay_ms, held.held_by) == (4_000, LAG), "the least lag comes first"


def test_a_segment_that_is_clean_in_part_is_dirty():
    assert judged([part(10), part(20)], first_dirty=15) == (20, 0.5, RATIO)
    assert judged([part(10)], first_dirty=5) == (10, 1.0, None)


@pytest.mark.parametrize(
    ("checkpoint", "start", "end", "dirty"),
    [(None, 0, 9, 0), (None, 4, 9, 4), (5, 0, 9, 5), (5, 7, 9, 7), (10, 2, 9, 2), (9, 0, 9, 9)],
)
def test_a_checkpoint_that_cannot_be_is_none(checkpoint, start, end, dirty):
    assert plan.first_dirty(checkpoint, start, end) == dirty


def test_a_segment_is_closed_in_time_to_be_compacted():
    times = {"segment_ms": 500, "max_compaction_lag_ms": 100}
    assert rolling_of(TopicConfig(**times)).segment_ms == 500
    assert rolling_of(TopicConfig(cleanup_policy=("compact",), **times)).segment_ms == 100
    assert rolling_of(TopicConfig(cleanup_policy=("compact",), segment_ms=50)).segment_ms == 50
