"""Cutting a torn tail: after a crash the log ends after its last good batch.

`verification` finds the good part of each segment; here the log is cut behind it, with its indexes
and append times, and the segments after the cut get names that end in `-cut`: no start reads them
again, and nobody but an operator removes them. The cut is durable when it is done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import filenames, files
from tidelog.storage.log.recovery import gaps, leftovers, verification
from tidelog.storage.segment.log_file import Tail

if TYPE_CHECKING:
    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.appended.checks import Stop
    from tidelog.storage.segment.segment import Segment

_log = logging.getLogger("tidelog.storage")


class Recovered(NamedTuple):
    """What recovery has read of a log."""

    stamps: dict[int, int | None]  # the largest LogAppendTime time by the segment's base offset
    first_marker: int | None = None  # the offset of the first control batch
    missing_offset: int | None = None  # of the first segment that lacks append times


def cut_torn_tail(
    segments: list[Segment],
    recovery_point: int,
    index_interval_bytes: int,
    *,
    log_start_offset: int,
    gaps_end: int,
    may_end_in_gap: bool,
    known: PartitionTimes | None,
    cut_offset: int,
    stop: Stop,
) -> Recovered:
    """Checks the log from the recovery point on, cuts it, and sets aside the segments after a cut.

    No batch of the last segment that reaches `cut_offset` is kept. With `may_end_in_gap` the log
    may end with an empty segment after a gap; otherwise consumers would only wait there. Segments
    before the log's start have been deleted, but a power loss may restore any part of them: they
    are cut, and the log continues all the same.
    """
    stamps: dict[int, int | None] = {}
    first_marker: int | None = None
    missing_offset: int | None = None
    covered_offset = recovery_point if known is None else max(known.covered_offset, recovery_point)
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        # The END entry of one that ends at the recovery point was written after the last flush.
        if not is_last and segment.tail.end_offset < recovery_point:
            continue
        size = segment.tail.size
        limit = verification.NO_LIMIT if is_last else segment.tail.end_offset
        times_size = segment.append_times.size()
        is_changed = _forgets_times(segment, covered_offset, known, stop, is_last=is_last)
        if missing_offset is None and (is_changed or not segment.append_times):
            missing_offset = segment.base_offset
        checked = verification.check(
            segment, recovery_point, limit, index_interval_bytes, gaps_end, cut_offset
        )
        is_gone = not is_last and limit <= log_start_offset
        later = segments[number + 1 :]
        is_gap_valid = limit <= gaps_end and (may_end_in_gap or any(s.tail.size for s in later))
        is_whole = checked.tail.size == size and (
            is_last or is_gap_valid or checked.tail.end_offset == limit
        )
        stamps[segment.base_offset] = checked.stamp
        first_marker = checked.first_marker if first_marker is None else first_marker
        is_complete = is_whole and not is_last
        segment.cut(Tail(limit, checked.tail.size) if is_gone or is_complete else checked.tail)
        if is_complete:
            is_changed |= segment.append_times.restore_end(limit, covered_offset)
        is_changed |= (checked.tail.size, segment.append_times.size()) != (size, times_size)
        if is_changed or gaps_end == gaps.ANYWHERE:
            segment.sync()  # the cut must be durable, and so must data with gaps
        if is_whole or is_gone:
            continue
        records = _drop_from(segments, number + 1, cut_offset)
        _log_cut(segment, checked.tail, size - checked.tail.size, len(later), records)
        break
    if gaps_end == gaps.ANYWHERE:
        files.sync(segments[-1].files.directory)
    return Recovered(stamps, first_marker, missing_offset)


def _forgets_times(
    segment: Segment,
    covered_offset: int,
    known: PartitionTimes | None,
    stop: Stop,
    *,
    is_last: bool,
) -> bool:
    """Returns whether append times of a segment had to be forgotten. Raises OSError."""
    times = segment.append_times
    if not is_last:
        times.close_at(segment.tail.end_offset, _last_time(segment, known), covered_offset)
    return not times.check(covered_offset, _time_before(segment, covered_offset, known), stop)


def _last_time(segment: Segment, known: PartitionTimes | None) -> int | None:
    """Returns the append time of a segment's last batch, None if that is not certain.

    Where the power has taken the last batches, the segment may have a size that it had before. The
    offset at which the next one begins shows that it had grown since.
    """
    times, size = segment.known.times, segment.known.size
    if size != segment.tail.size or times.has_unknown:
        return None
    lines = () if known is None else known.segments
    has_grown = any(
        line.base_offset == segment.base_offset and line.end_offset < segment.tail.end_offset
        for line in lines
    )
    return None if has_grown else times.last_append


def _time_before(segment: Segment, covered_offset: int, known: PartitionTimes | None) -> int | None:
    """Returns the last append time of a segment before the covered offset, None if unknown."""
    for line in () if known is None else known.segments:
        if line.base_offset == segment.base_offset and line.end_offset == covered_offset:
            return None if line.times.has_unknown else line.times.last_append
    return None


def _log_cut(segment: Segment, tail: Tail, dropped_bytes: int, behind: int, records: int) -> None:
    _log.warning(
        "recovery truncated log",
        extra={
            "segment": segment.path,
            "end_offset": tail.end_offset,
            "kept_bytes": tail.size,
            "dropped_bytes": dropped_bytes,
            "dropped_segments": behind,
            "records_set_aside": records,
        },
    )


def _drop_from(segments: list[Segment], first: int, cut_offset: int) -> int:
    """Takes the segments after a cut out of the log, the last one first; returns their records.

    They are set aside, because their records may be whole, and acknowledged. What a truncation was
    to remove, from `cut_offset` on, is removed. Raises OSError.
    """
    records = 0
    directory = segments[-1].files.directory
    while len(segments) > first:
        segment = segments[-1]
        if segment.tail.size and segment.base_offset < cut_offset:
            records += _set_aside(segment)
        segment.remove()
        segments.pop()
    files.sync(directory)
    return records


def _set_aside(segment: Segment) -> int:
    """Renames a segment's log and append times to `-cut`, and returns how many records it has.

    The log is last: an interrupted start finds a segment, or none. Raises OSError.
    """
    found = _count_records(segment)
    segment.rest()
    times = segment.files.of(filenames.APPEND_TIMES_SUFFIX).path
    if times.exists():
        leftovers.set_aside(times, filenames.CUT_SUFFIX)
    away = leftovers.set_aside(segment.path, filenames.CUT_SUFFIX)
    _log.warning(
        "recovery renamed segment after truncation", extra={"file": away, "records": found}
    )
    return found


def _count_records(segment: Segment) -> int:
    """Returns how many records the headers of a segment's whole batches name.

    The header of a compressed wrapper has no count: there all offsets since the batch before count.
    """
    records, last_offset = 0, segment.base_offset - 1
    try:
        for found in segment.walk():
            batch = found.batch
            records += batch.count if batch.count >= 0 else batch.last_offset - last_offset
            last_offset = batch.last_offset
    except (CorruptMessage, OSError) as error:
        _log.warning(
            "recovery did not count all records after truncation",
            extra={"segment": segment.path, "reason": str(error)},
        )
    return records


def drop_empty(
    segments: list[Segment], log_start_offset: int, gaps_end: int, *, was_compacted: bool
) -> None:
    """Removes the first segments if they are empty: the log begins where it can be read.

    Compaction may have left a segment empty; that one stays, so that the log start does too.
    """
    is_recorded = gaps_end < gaps.ANYWHERE
    while len(segments) > 1 and not segments[0].tail.size:
        following = segments[1].base_offset
        if log_start_offset < following <= gaps_end and (is_recorded or was_compacted):
            return
        segments.pop(0).remove()
