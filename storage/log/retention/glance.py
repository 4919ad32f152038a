"""What is known of a log's times at a glance: from memory alone, nothing is read for it.

Metrics ask for it, of every open partition, every few seconds.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from storage.time.retention import Candidate, retention_schedule, with_inherited_times
from storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.segment.segment import Segment
    from storage.time.retention import Retention
    from storage.time.segment_times import SegmentTimes


class Glance(NamedTuple):
    """Times of a log, ms; None where there is none, or where it is not known without reading."""

    first_event_time: int | None  # the first record time of the oldest segment that has any
    largest_record_time: int | None  # of what is still there, as it came
    first_append_time: int | None  # of the oldest segment
    next_policy: str | None  # by which the oldest segment goes, as things are
    next_due_ms: int | None  # and when


def at(
    segments: Sequence[Segment],
    rules: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> Glance:
    """Look at a log's segments."""
    known = [segment.known_times for segment in segments]
    first = next((times.first for times, _ in known if times.first is not None), None)
    largest = None
    for times, _ in known:
        largest = later(times.largest, largest)
    policy = due_ms = None
    if all(size >= segment.tail.size for segment, (_, size) in zip(segments, known, strict=True)):
        candidates = with_inherited_times(
            Candidate(s.tail.end_offset, s.tail.size, functools.partial(_itself, times))
            for s, (times, _) in zip(segments, known, strict=True)
        )
        schedule = retention_schedule(
            candidates,
            rules,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            max_event_time=max_event_time,
        )[0]
        policy, due_ms = schedule.policy, schedule.due_ms
    created = next((times.created for times, size in known if size), None)
    return Glance(first, largest, created, policy, due_ms)


def _itself(times: SegmentTimes) -> SegmentTimes:
    return times
