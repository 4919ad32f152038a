"""When a segment ends because of time (KIP-33).

A record time may be wrong in both directions, so it never keeps a segment open and never closes
one early: it counts at most as the append time of its batch, and the first record time of a segment
at most as the segment's first append. Whatever record times say, a segment ends when it is older
than the setting, by append time or by the broker's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.time.timestamp import MAX_TIMESTAMP, earlier

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.storage.time.segment_times import SegmentTimes


class Rolling(NamedTuple):
    """A topic's settings for the age of a segment."""

    setting: str  # that decides the largest age
    segment_ms: int
    min_interval_ms: int


def should_roll(
    times: SegmentTimes,
    largest: int | None,
    append_time_ms: int,
    now_ms: int,
    segment_ms: int,
    min_interval_ms: int,
) -> bool:
    """Returns whether the next append begins a new segment because of time.

    `largest` is the largest record time of the batch. The segment ends if it is more than
    `segment_ms` old, by append time or by the clock. Append times stand still while the clock is
    behind them, and the clock may have been set back, so either alone is not enough. It also ends
    if the batch's largest time is more than `segment_ms` after the segment's first. No segment ends
    by time before it is `min_interval_ms` old, because old and new record times in turn would end
    a segment with every batch.
    """
    created, clock = times.created, times.created_clock
    if created is None:
        if clock is None:
            return False
        created = clock
    age = append_time_ms - created
    if clock is not None and now_ms - clock > age:
        age = now_ms - clock
    if age < min_interval_ms:
        return False
    if age > segment_ms:
        return True
    first = times.first
    if largest is None or first is None:
        return False
    # The smaller of each two, compared: `created` is no more than `segment_ms` ago, see above.
    return largest - first > segment_ms and append_time_ms - first > segment_ms


def rolls_from(times: SegmentTimes, rolling: Rolling) -> int | None:
    """Returns the first moment at which any append begins a new segment.

    None if this one is empty, or if there is no such moment. Record times may begin one earlier.
    """
    created = earlier(times.created, times.created_clock)
    if created is None:
        return None
    moment = created + max(rolling.segment_ms + 1, rolling.min_interval_ms)
    return moment if moment <= MAX_TIMESTAMP else None


def never_ends(times: SegmentTimes, rolling: Rolling) -> bool:
    """Returns whether a segment has records, but no age at which an append ends it."""
    began = earlier(times.created, times.created_clock)
    return began is not None and rolls_from(times, rolling) is None


def longest_age(rolling: Rolling) -> int:
    """Returns how many ms after its first append a segment still gets appends, at most."""
    return max(rolling.segment_ms, rolling.min_interval_ms)


def waits_for_append(times: SegmentTimes, rolling: Rolling, now_ms: int, allowed_ms: int) -> int:
    """Returns for how many ms a segment has been so old that an append would end it.

    0 if it is not so old, or not for more than `allowed_ms`.
    """
    moment = rolls_from(times, rolling)
    return 0 if moment is None or now_ms - moment <= allowed_ms else now_ms - moment


def rolling_of(config: TopicConfig) -> Rolling:
    """Returns a topic's settings for rolling.

    A compacted topic rolls within max.compaction.lag.ms, because only closed segments are
    compacted.
    """
    setting, segment_ms = "segment.ms", config.segment_ms
    if config.is_compacted and config.max_compaction_lag_ms < segment_ms:
        setting, segment_ms = "max.compaction.lag.ms", config.max_compaction_lag_ms
    return Rolling(setting, segment_ms, config.segment_min_roll_interval_ms)
