"""What can be said of a partition without opening it, from what its clean stop wrote down.

Retention uses it, so that a round does not open ten thousand partitions, and keep them in memory,
to find that nothing is to be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import filenames
from storage.log.recovery import listing
from storage.log.times import partition_times
from storage.time.retention import Candidate, retention_of, segments_to_delete, with_inherited_times
from storage.time.timestamp import later

if TYPE_CHECKING:
    from pathlib import Path

    from config.topic import TopicConfig
    from storage.segment.segment_line import SegmentLine
    from storage.time.segment_times import SegmentTimes


def keeps_everything(
    directory: Path, config: TopicConfig, now_ms: int, log_start_offset: int
) -> bool:
    """Returns whether retention would delete nothing in a partition that was stopped cleanly.

    False also if `partition.times` does not describe every segment as it is: then the partition
    must be opened to know. Raises OSError.
    """
    known = partition_times.read(directory)
    if known is None or not known.segments:
        return False
    lines = known.segments
    if [line.base_offset for line in lines] != listing.listed(directory).base_offsets:
        return False
    active = directory / filenames.segment_file(lines[-1].base_offset, filenames.LOG_SUFFIX)
    if active.stat().st_size != lines[-1].size:
        return False
    max_event_time = known.max_event_time
    for line in lines:
        max_event_time = later(line.times.event, max_event_time)
    return not segments_to_delete(
        with_inherited_times(map(_candidate, lines)),
        retention_of(config),
        now_ms=now_ms,
        log_start_offset=max(known.log_start_offset, log_start_offset),
        high_watermark=lines[-1].end_offset,
        max_event_time=max_event_time,
    )


def _candidate(line: SegmentLine) -> Candidate:
    def times() -> SegmentTimes:
        return line.times

    return Candidate(line.end_offset, line.size, times)
