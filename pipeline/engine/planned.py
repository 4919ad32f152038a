"""Predicts the segments of batches that would be appended now, or that were sampled over the wire.

A restore or a backfill uses the first before it writes old records: `whatif.judge` then says what
retention would delete of them. Segments roll where the broker rolls them, by size and by time
(`rolling.should_roll`). A roll because an index is full is not predicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipeline.engine.whatif import LogSegment, SimulatedLog
from tidelog.storage.time.event_time import event_limit, event_slack
from tidelog.storage.time.rolling import rolling_of, should_roll
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.stamping import rules_of
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.config import TopicConfig

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


class Sample(NamedTuple):
    """A batch, and the offsets from `start_offset` to before `end_offset` for which it stands.

    `size` is the bytes of those offsets, exact where the batch stands for itself. Times are in ms;
    None: there is none, or the broker does not tell append times. `segment` is the base offset of
    its segment, where a broker tells append times and so names it. `has_missing`: a record is known
    to have no time.
    """

    start_offset: int
    end_offset: int
    size: int
    first_ms: int | None
    largest_ms: int | None
    append_ms: int | None
    segment: int | None
    is_control: bool
    has_missing: bool = False


def log_of(
    topic: str,
    partition: int,
    arrivals: Iterable[Arrival],
    config: TopicConfig,
    now_ms: int,
    start_offset: int = 0,
) -> SimulatedLog:
    """Returns the log that these batches would make by a topic's settings, appended at `now_ms`."""

    def appended() -> Iterator[Sample]:
        is_stamped, offset = rules_of(config, NEWEST_MAGIC).log_append_time, start_offset
        for first, largest, has_missing, records, size in arrivals:
            times = (now_ms, now_ms) if is_stamped else (first, largest)
            is_missing = has_missing and not is_stamped
            end = offset + records
            yield Sample(offset, end, size, *times, now_ms, None, False, is_missing)
            offset = end

    log = log_of_samples(topic, partition, appended(), config, now_ms, start_offset)
    return log._replace(is_sampled=False)


def log_of_samples(
    topic: str,
    partition: int,
    samples: Iterable[Sample],
    config: TopicConfig,
    now_ms: int,
    start_offset: int,
) -> SimulatedLog:
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
            times.note(one.first_ms, one.largest_ms, last_offset, one.has_missing, append, limit)
        if seen is None:
            times.note_adopted(now_ms)
        else:
            times.note_append(seen)
            if not appended or seen != appended[-1][1]:
                appended.append((one.start_offset, seen))
        largest_event = later(times.event, largest_event)
        offset, size = one.end_offset, size + one.size
    close()
    return SimulatedLog(
        topic, partition, tuple(segments), start_offset, offset, largest_event, True
    )
