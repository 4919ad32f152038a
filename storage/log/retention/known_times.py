"""The known times of a log, from memory alone, without reading anything.

The metrics of every open partition use it every few seconds, and `diagnosis` judges its facts.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.log.retention.findings import Facts, SegmentFacts
from tidelog.storage.time.retention import Candidate, retention_schedule, with_inherited_times
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.arrivals import Arrivals
    from tidelog.storage.time.corrections import Correction
    from tidelog.storage.time.retention import Retention
    from tidelog.storage.time.segment_times import SegmentTimes


class KnownTimes(NamedTuple):
    """Times of a log in ms; None if there is none, or if it is unknown without reading."""

    first_event_time: int | None  # the first record time of the oldest segment with times
    largest_record_time: int | None  # of the existing segments, without the event-time limit
    first_append_time: int | None  # of the oldest segment
    next_policy: str | None  # that will delete the oldest segment, without further appends
    next_due_ms: int | None  # and the time at which it does


def collect(
    segments: Sequence[Segment],
    rules: Retention,
    judge: Callable[[Segment, SegmentTimes], SegmentTimes],
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> KnownTimes:
    """Returns the known times of a log's segments; `judge` returns what those of one count as."""
    known = [(segment.known.times, segment.known.size) for segment in segments]
    first = next((times.first for times, _ in known if times.first is not None), None)
    largest = None
    for times, _ in known:
        largest = later(times.largest, largest)
    policy = due_ms = None
    if all(size >= segment.tail.size for segment, (_, size) in zip(segments, known, strict=True)):
        candidates = with_inherited_times(
            Candidate(s.tail.end_offset, s.tail.size, functools.partial(judge, s, times))
            for s, (times, _) in zip(segments, known, strict=True)
        )
        schedule = retention_schedule(
            candidates,
            rules,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            max_event_time=max_event_time,
        )
        oldest = next(schedule)
        policy, due_ms = oldest.policy, oldest.due_ms
    created = next((times.created for times, size in known if size), None)
    return KnownTimes(first, largest, created, policy, due_ms)


def facts(
    segments: Sequence[Segment],
    judge: Callable[[Segment, SegmentTimes], SegmentTimes],
    *,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
    last_append_time: int | None,
    corrections: Sequence[Correction],
    is_replicated: bool,
    arrivals: Arrivals,
) -> Facts:
    """Returns what is known of a log's times, to be judged by `diagnosis.diagnose`."""
    known = [(segment.known.times, segment.known.size) for segment in segments]
    candidates = with_inherited_times(
        Candidate(s.tail.end_offset, s.tail.size, functools.partial(judge, s, times))
        for s, (times, _) in zip(segments, known, strict=True)
    )
    found = [
        SegmentFacts(
            segment.base_offset,
            candidate,
            times,
            segment.known.adoptions.latest_within(segment.base_offset, candidate.end_offset)
            if times.has_unknown
            else None,
            max(candidate.size - size, 0),
        )
        for segment, candidate, (times, size) in zip(segments, candidates, known, strict=True)
    ]
    return Facts(
        found,
        log_start_offset,
        high_watermark,
        max_event_time,
        last_append_time,
        corrections,
        is_replicated=is_replicated,
        zero_batches=arrivals.zero_batches,
        zero_time=arrivals.zero_time,
    )
