"""When a segment ends because of time (KIP-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.topic import TopicConfig
    from storage.time.segment_times import SegmentTimes


def should_roll(
    times: SegmentTimes,
    largest: int | None,
    append_time_ms: int,
    segment_ms: int,
    min_interval_ms: int,
) -> bool:
    """Returns whether the next append begins a new segment because of time.

    It does if its largest record time is more than `segment_ms` after the segment's first record
    time. If either has no record time, its append time is compared with that of the segment's first
    batch. No segment is rolled by time before it is `min_interval_ms` old by append time, because
    old and new record times in turn would roll a segment with every batch.
    """
    if times.created is None:
        return False
    age = append_time_ms - times.created
    if age < min_interval_ms:
        return False
    if largest is None or times.first is None:
        return age > segment_ms
    return largest - times.first > segment_ms


def segment_span(config: TopicConfig) -> int:
    """Returns the setting, in ms, after which a segment is rolled.

    A compacted topic rolls within max.compaction.lag.ms, because only closed segments are
    compacted.
    """
    if config.is_compacted:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms
