"""Predicts the segments of batches that would be appended now, or that were sampled over the wire.

A restore or a backfill uses the first before it writes old records: `whatif.judge` then says what
retention would delete of them. Segments roll where the broker rolls them, by size and by time
(`rolling.should_roll`). A roll because an index is full is not predicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipeline.engine.whatif import Log, LogSegment
from tidelog.storage.time.event_time import event_limit, event_slack
from tidelog.storage.time.rolling import rolling_of, should_roll
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.stamping import rules_of
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.config import TopicConfig
    from tidelog.pipeline.source.sampling import Sample

NEWEST_MAGIC = 2


class Arrival(NamedTuple):
    """A batch to be appended: its record times, whether a record has none, and its size.

    The times are None if no record has one.
    """

    first: int | None
    largest: int | None
    has_missing: bool
    records: int
    size: int


def log_of(
    topic: str,
    partition: int,
    arrivals: Iterable[Arrival],
    config: TopicConfig,
    now_ms: int,
    start_offset: int = 0,
) -> Log:
    """Returns the log that these batches would make by a topic's settings, appended at `now_ms`."""
    rules = rules_of(config, NEWEST_MAGIC)
    limit = event_limit(event_slack(config), now_ms)
    _, span_ms, least_ms = rolling_of(config)
    segments: list[LogSegment] = []
    times, base, size, offset = SegmentTimes(), start_offset, 0, start_offset
    largest_event: int | None = None

    def close() -> None:
        appended = ((base, now_ms),) if size else ()
        segments.append(LogSegment(base, offset, size, times, appended, now_ms))

    for arrival in arrivals:
        first, largest, has_missing = arrival.first, arrival.largest, arrival.has_missing
        if rules.log_append_time:
            first, largest, has_missing = now_ms, now_ms, False
        is_full = size > 0 and size + arrival.size > config.segment_bytes
        if is_full or should_roll(times, largest, now_ms, now_ms, span_ms, least_ms):
            close()
            times, base, size = SegmentTimes(), offset, 0
        last_offset = offset + arrival.records - 1
        times.note(first, largest, last_offset, has_missing, now_ms, limit)
        times.note_append(now_ms)
        largest_event = later(times.event, largest_event)
        offset, size = last_offset + 1, size + arrival.size
    close()
    return Log(topic, partition, tuple(segments), start_offset, offset, largest_event)


def log_of_samples(
    topic: str,
    partition: int,
    samples: Iterable[Sample],
    config: TopicConfig,
    now_ms: int,
    start_offset: int,
) -> Log:
    """Returns about the log of which these are samples; it is marked as estimated.

    A segment ends where a sample names another segment. Where samples name none, it ends where the
    broker would have ended it by the topic's settings. Batches without a known append time count as
    appended now, as those of a directory do, and as appended at their largest time for the borders.
    """
    slack = event_slack(config)
    _, span_ms, least_ms = rolling_of(config)
    segments: list[LogSegment] = []
    times, appended = SegmentTimes(), list[tuple[int, int]]()
    base, size, offset, within = start_offset, 0, start_offset, None
    largest_event: int | None = None
    clock = -(2**63)

    def close() -> None:
        known = tuple(appended) if not times.has_unknown else ()
        segments.append(LogSegment(base, offset, size, times, known, now_ms))

    for one in samples:
        seen = one.append_ms
        stand_in = now_ms if one.largest_ms is None else min(one.largest_ms, now_ms)
        clock = max(clock, stand_in if seen is None else seen)
        if one.segment is not None and within is not None:
            is_other = one.segment != within
        else:
            is_other = (size > 0 and size + one.size > config.segment_bytes) or should_roll(
                times, one.largest_ms, clock, clock, span_ms, least_ms
            )
        if size and is_other:
            close()
            times, appended, base, size = SegmentTimes(), [], one.start_offset, 0
        within = one.segment
        append = now_ms if seen is None else seen
        if one.is_control:
            times.note_control(append)
        else:
            limit = event_limit(slack, append)
            last_offset = one.end_offset - 1
            times.note(one.first_ms, one.largest_ms, last_offset, False, append, limit)
        if seen is None:
            times.note_adopted(now_ms)
        else:
            times.note_append(seen)
            appended.append((one.start_offset, seen))
        largest_event = later(times.event, largest_event)
        offset, size = one.end_offset, size + one.size
    close()
    return Log(topic, partition, tuple(segments), start_offset, offset, largest_event, True)
