"""Predicts the segments that batches would make if they were appended now.

A restore or a backfill uses this before it writes old records: `whatif.judge` then says what
retention would delete of them. Segments roll where the broker rolls them, by size and by time
(`rolling.should_roll`). A roll because an index is full is not predicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pipeline.engine.whatif import Log, LogSegment
from storage.time.event_time import event_limit, event_slack
from storage.time.rolling import rolling_of, should_roll
from storage.time.segment_times import SegmentTimes
from storage.time.stamping import rules_of
from storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Iterable

    from config import TopicConfig

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
