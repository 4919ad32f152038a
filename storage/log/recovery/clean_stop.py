"""What is trusted without reading the log: after a clean stop, and after another broker's use.

After a clean stop `partition.times` describes every segment. If it describes other sizes, another
broker has written to the log since; then the headers after the last index entry decide where the
log ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import filenames, files
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment_line import CountedBefore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.segment import Segment


def adopt_times(
    segments: Sequence[Segment], known: PartitionTimes | None, *, was_clean: bool
) -> None:
    """Applies the lines of `partition.times` to segments of the same size.

    After a clean stop the file describes everything: a longer log was written by another program,
    which may have changed all of it. After a crash the log may be longer.
    """
    if known is None:
        return
    lines = {line.base_offset: line for line in known.segments}
    for segment in segments:
        line = lines.get(segment.base_offset)
        if line is None:
            continue
        if line.size > segment.tail.size:
            segment.known.counted_before = CountedBefore(line.size, line.times.event)
            continue
        if line.size == segment.tail.size or not was_clean:
            segment.adopt(line, is_true=line.is_true, covered_offset=known.covered_offset)


def bound_events(segments: Sequence[Segment], counted: PartitionTimes) -> None:
    """Lets event times count as no more than they did before compaction replaced some segments.

    `counted` is the file as it was then, when all that was to be replaced had been counted.
    """
    lines = {line.base_offset: line for line in counted.segments}
    for segment in segments:
        line = lines.get(segment.base_offset)
        if line is not None and (segment is segments[-1] or line.size == segment.tail.size):
            segment.known.counted_before = CountedBefore(line.size, line.times.event)
        elif segment is not segments[-1]:
            segment.known.counted_before = CountedBefore(segment.tail.size, counted.max_event_time)


def clean_end(active: Segment, recovery_point: int, known: PartitionTimes | None) -> int | None:
    """Returns the end of the log after a clean stop; None if it is not certain.

    `partition.times` gives it if the segment has the size in the file; else the log's last batches
    do.
    """
    for line in known.segments[-1:] if known is not None else ():
        if (line.base_offset, line.size) == (active.base_offset, active.tail.size):
            return line.end_offset
    return recovery_point if _ends_at(active, recovery_point) else None


def _ends_at(segment: Segment, offset: int) -> bool:
    """Returns whether the log's last batch ends before `offset`; reads few headers.

    A checkpoint may be older than the log, and must not hide later batches.
    """
    end_offset = segment.base_offset
    if segment.tail.size:
        segment.indexes.read_index()
        entry = segment.index.last()
        try:
            for found in segment.walk(0 if entry is None else entry.position):
                end_offset = found.batch.last_offset + 1
        except CorruptMessage:
            return False
    return end_offset == offset


def was_open_in_kafka(segment: Segment) -> bool:
    """Returns whether Kafka has opened the log since we did, and was not stopped cleanly.

    Kafka gives the last segment's index its full size when it opens a log, and truncates it when it
    closes it. Our indexes never end with zeros, because no entry has position 0. Raises OSError.
    """
    path = segment.files.directory / filenames.segment_file(
        segment.base_offset, filenames.OFFSET_INDEX_SUFFIX
    )
    try:
        descriptor = files.Descriptor(path)
    except FileNotFoundError:
        return False
    entries = descriptor.size() // OffsetIndex.entry_size
    if not entries:
        return False
    last = files.read_at(descriptor, OffsetIndex.entry_size, (entries - 1) * OffsetIndex.entry_size)
    return not any(last)
