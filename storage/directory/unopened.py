"""What is known of a partition without opening it, from what its clean stop wrote.

Retention and diagnosis use it, so that a round does not open ten thousand partitions, and keep them
in memory, to find that nothing is to be deleted, or that nothing is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import checkpoints, filenames
from tidelog.storage.log.recovery import listing
from tidelog.storage.time.adoption import Adoptions
from tidelog.storage.time.corrections import counted_event, is_behind, judged_times, pending_steps
from tidelog.storage.time.retention import (
    Candidate,
    retention_of,
    segments_to_delete,
    with_inherited_times,
)
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, later

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.directory.opening_clock import ClockNow
    from tidelog.storage.log.retention.findings import Facts
    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.segment_line import SegmentLine
    from tidelog.storage.time.corrections import Correction
    from tidelog.storage.time.segment_times import SegmentTimes


def topic_id(directory: Path) -> uuid.UUID | None:
    """Returns the topic id written in a partition's directory; None if there is no readable one.

    Raises KafkaStorageError if the disk does not give the file.
    """
    try:
        return checkpoints.read_topic_id(directory)
    except checkpoints.CheckpointError:
        return None
    except OSError as error:
        raise KafkaStorageError(
            f"{directory.name}: the topic id cannot be read: {error.strerror or error}"
        ) from error


def has_sealed_segments(directory: Path) -> bool:
    """Returns whether a partition has more segments than its active one. Raises OSError."""
    try:
        return len(listing.listed(directory).base_offsets) > 1
    except FileNotFoundError:  # it has just been deleted
        return False


def keeps_everything(facts: Facts, config: TopicConfig, now_ms: int, clock: ClockNow) -> bool:
    """Returns whether retention would delete nothing in a partition of these facts.

    False also if its append times are ahead of the clock: it has to be opened to correct them.
    """
    return not is_behind(facts.last_append_time, clock.now_ms) and not segments_to_delete(
        [segment.candidate for segment in facts.segments],
        retention_of(config),
        now_ms=now_ms,
        log_start_offset=facts.log_start_offset,
        high_watermark=facts.high_watermark,
        max_event_time=facts.max_event_time,
    )


def facts(directory: Path, log_start_offset: int, slack_ms: int, clock: ClockNow) -> Facts | None:
    """Returns what is known of the times of a partition that was stopped cleanly.

    None if `partition.times` does not describe every segment as it is, or if a step of the clock
    concerns it: then the partition must be opened to know. Append times may be ahead of the clock.
    `slack_ms` is how far beyond its append time an event time counts. Raises OSError.
    """
    from tidelog.storage.log.retention.findings import Facts, SegmentFacts

    try:
        known = _read(directory)
    except FileNotFoundError:
        return None  # it has just been deleted
    if known is None:
        return None
    if pending_steps(clock.history, known.clock.history_id, known.clock.number):
        return None
    adoptions = Adoptions(known.adopted, MAX_TIMESTAMP)
    adopted = [
        adoptions.latest_within(line.base_offset, line.end_offset) for line in known.segments
    ]
    judged = [
        _candidate(line, known.corrections, slack_ms, adopted_ms)
        for line, adopted_ms in zip(known.segments, adopted, strict=True)
    ]
    max_event_time = known.max_event_time
    for line, candidate in zip(known.segments, judged, strict=True):
        max_event_time = later(counted_event(line.times, candidate.times()), max_event_time)
    segments = [
        SegmentFacts(
            line.base_offset, candidate, line.times, adopted_ms if line.times.has_unknown else None
        )
        for line, candidate, adopted_ms in zip(
            known.segments, with_inherited_times(judged), adopted, strict=True
        )
    ]
    return Facts(
        segments,
        max(known.log_start_offset, log_start_offset),
        known.segments[-1].end_offset,
        max_event_time,
        known.last_append_time_ms,
        known.corrections,
        is_closed=True,
        is_replicated=known.is_replicated,
    )


def _read(directory: Path) -> PartitionTimes | None:
    """Returns `partition.times` if it describes every segment as it is. Raises OSError."""
    from tidelog.storage.log.times import partition_times

    known = partition_times.read(directory)
    if known is None or not known.segments:
        return None
    lines = known.segments
    if [line.base_offset for line in lines] != listing.listed(directory).base_offsets:
        return None
    active = directory / filenames.segment_file(lines[-1].base_offset, filenames.LOG_SUFFIX)
    return known if active.stat().st_size == lines[-1].size else None


def _candidate(
    line: SegmentLine, corrections: Sequence[Correction], slack_ms: int, adopted_ms: int
) -> Candidate:
    """Returns a segment with what its times count as."""
    base_offset, end_offset = line.base_offset, line.end_offset
    judged = judged_times(line.times, corrections, base_offset, end_offset, slack_ms, adopted_ms)

    def times() -> SegmentTimes:
        return judged

    return Candidate(end_offset, line.size, times)
