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
    """Tell whether what is about to be appended begins a new segment, by time.

    When its largest record time lies more than `segment_ms` beyond the segment's first one. Where
    there are no times to compare, the append time is compared with that of the segment's first batch.
    Old and new times that alternate would roll with every batch: a segment is not rolled by time
    before it is `min_interval_ms` old by append time.
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
    """Return the span of time after which a segment is closed.

    What has to be compacted within max.compaction.lag.ms has to be in a closed segment by then.
    """
    if config.is_compacted:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms
