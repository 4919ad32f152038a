"""Opening a partition's directory: what is trusted, what is checked, what is cut off.

After a clean stop (`.kafka_cleanshutdown` in the log directory) the recovery point is the end of
the log. The headers after the last index entry confirm that, and no more of the log is read. After
any other end, everything from the recovery point on is checked batch by batch, checksum and order.
The log is cut at the first bad batch, later segments are removed, and indexes and append times are
made to end where the log ends. Data before the recovery point was durable and is trusted. A crash
during recovery leaves a log that can be recovered again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import CorruptMessage
from storage import filenames, files
from storage.log.recovery import gaps, leftovers, verification
from storage.segment.log_file import Tail
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import Segment
from storage.time.segment_times import SegmentTimes
from storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from storage.log.times.partition_times import PartitionTimes

_log = logging.getLogger("tidelog.storage")


class Loaded(NamedTuple):
    """The segments of a partition, checked as far as necessary."""

    segments: tuple[Segment, ...]  # by base offset, at least one; the last is open for append
    last_append_time_ms: int | None
    back_offset: int  # the last reset of the append clock; 0 if the log no longer has it
    gaps_end_offset: int  # up to which the log may have gaps; see `gaps`


class Directory(NamedTuple):
    """The content of a partition's directory."""

    base_offsets: list[int]  # ascending
    snapshot_offsets: list[int]  # ascending


def load(
    directory: Path,
    *,
    recovery_point: int,
    was_clean: bool,
    log_start_offset: int,
    index_interval_bytes: int,
    cleaned_offset: int | None,
    is_compacted: bool,
    known: PartitionTimes | None,
    boot_id: str,
) -> Loaded:
    """Open the segments of a directory; an empty one gets a segment at the log's start.

    Before `cleaned_offset` the log has been compacted, and `is_compacted` is the topic's setting.
    `known` is the content of `partition.times`, `boot_id` identifies this boot of the machine. A
    truncation that was in progress is completed. Raises OSError.
    """
    if leftovers.tidy(directory) and known is not None:
        known = known._replace(segments=())  # it describes replaced segments
    cut_offset = verification.NO_LIMIT
    if known is not None and known.cut is not None and known.cut.offset is not None:
        cut_offset, was_clean = known.cut.offset, False
        leftovers.remove_behind(directory, cut_offset, everything=known.cut.begins_anew)
    found = listed(directory)
    segments = _described(directory, found.base_offsets, log_start_offset)
    stamps: dict[int, int | None] = {}
    if not found.base_offsets:
        segments[-1].activate()
        if known is None or cut_offset == verification.NO_LIMIT:
            return Loaded(tuple(segments), None, 0, gaps.NOWHERE)
        return Loaded(tuple(segments), known.last_append_time_ms, known.back_offset, gaps.NOWHERE)
    _adopt(segments, known, was_clean=was_clean)
    is_ours = not _was_open_in_kafka(segments[-1])
    end_offset = _clean_end(segments[-1], recovery_point, known) if was_clean else None
    if end_offset is not None:
        segments[-1].tail = Tail(end_offset, segments[-1].tail.size)
        gaps_end = gaps.gaps_end_after_clean_stop(
            segments, known, cleaned_offset=cleaned_offset, end_offset=end_offset
        )
    else:
        gaps_end = gaps.gaps_end(
            segments,
            known,
            cleaned_offset=cleaned_offset,
            is_compacted=is_compacted,
            is_ours=is_ours,
        )
        stamps = _recover(
            segments,
            recovery_point,
            index_interval_bytes,
            log_start_offset=log_start_offset,
            gaps_end=gaps_end,
            may_end_in_gap=gaps_end != gaps.ANYWHERE or is_compacted or cleaned_offset is not None,
            known=known,
            cut_offset=cut_offset,
        )
        _drop_empty(segments, log_start_offset, gaps_end)
        _drop_later_snapshots(directory, found.snapshot_offsets, segments[-1].tail.end_offset)
    for segment in segments[:-1]:
        segment.seal()
    back_offset = 0 if known is None else known.back_offset
    if segments[-1].base_offset < back_offset:
        back_offset = 0  # the reset was cut off, and no append time decreases in the rest
    # Entries that are doubted next count too, because append times never decrease.
    last_time = _last_append_time(segments, back_offset, stamps)
    if known is None and not was_clean:
        _doubt_append_times(segments, segments[0].base_offset)
    elif known is not None and (was_clean or known.boot_id != boot_id or not is_ours):
        _doubt_append_times(segments, known.covered_offset)
    _note_unknown(segments, was_clean=was_clean)
    segments[-1].activate()
    if known is not None:
        last_time = later(known.last_append_time_ms, last_time)
    gaps_end = min(gaps_end, segments[-1].tail.end_offset)
    return Loaded(tuple(segments), last_time, back_offset, gaps_end)


def _described(directory: Path, base_offsets: Sequence[int], start_offset: int) -> list[Segment]:
    """Return the segments with their file sizes; else one empty segment. Raises OSError."""
    sizes = {
        base: (directory / filenames.segment_file(base, filenames.LOG_SUFFIX)).stat().st_size
        for base in base_offsets
    }
    bases = base_offsets or [start_offset]
    return [
        Segment(directory, base, Tail(following, sizes.get(base, 0)))
        for base, following in zip(bases, [*bases[1:], bases[-1]], strict=True)
    ]


def _was_open_in_kafka(segment: Segment) -> bool:
    """Tell whether Kafka has opened the log since we did, and was not stopped cleanly.

    Kafka gives the last segment's index its full size when it opens a log, and truncates it when it
    closes it. Our indexes never end with zeros, because no entry has position 0. Raises OSError.
    """
    path = segment.directory / filenames.segment_file(
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


def _adopt(segments: Sequence[Segment], known: PartitionTimes | None, *, was_clean: bool) -> None:
    """Apply the lines of `partition.times` to segments of the same size.

    After a clean stop the file describes everything: a longer log was written by another program,
    which may have changed all of it. After a crash the log may be longer.
    """
    if known is None:
        return
    lines = {line.base_offset: line for line in known.segments}
    for segment in segments:
        line = lines.get(segment.base_offset)
        if line is None or line.size > segment.tail.size:
            continue
        if line.size == segment.tail.size or not was_clean:
            segment.adopt(line, is_true=line.is_true, covered_offset=known.covered_offset)


def _clean_end(active: Segment, recovery_point: int, known: PartitionTimes | None) -> int | None:
    """Return the end of the log after a clean stop; None if it is not certain.

    `partition.times` gives it if the segment has the size in the file; else the log's last batches
    do.
    """
    for line in known.segments[-1:] if known is not None else ():
        if (line.base_offset, line.size) == (active.base_offset, active.tail.size):
            return line.end_offset
    return recovery_point if _ends_at(active, recovery_point) else None


def _doubt_append_times(segments: Sequence[Segment], covered_offset: int) -> None:
    """Mark the append times after an offset as unknown.

    There was a power loss, or another program has written there. Either way the file's entries may
    be older than the batches that they describe, except for those that the file marks as durable
    (flush mode). Raises OSError.
    """
    for segment in segments:
        end_offset = segment.tail.end_offset
        if end_offset <= covered_offset or not segment.tail.size:
            continue
        vouched_offset = segment.append_times.end_offset
        from_offset = max(covered_offset, vouched_offset)
        if from_offset < end_offset:
            _log.warning(
                "append times unknown",
                extra={"segment": segment.path, "from": from_offset, "to": end_offset},
            )
            segment.append_times.mark_unknown(from_offset)
            segment.known_times = SegmentTimes(), 0


def _note_unknown(segments: Sequence[Segment], *, was_clean: bool) -> None:
    """Record in the segments' times whether some append time is unknown. Raises OSError."""
    for segment in segments:
        times, size = segment.known_times
        if size < segment.tail.size:
            times.has_unknown |= not segment.append_times.is_complete
        elif times.has_unknown and not was_clean:  # perhaps only of batches cut off since
            times.has_unknown = not segment.append_times.is_complete


def _ends_at(segment: Segment, offset: int) -> bool:
    """Tell whether the log's last batch ends before `offset`; reads few headers.

    A checkpoint may be older than the log, and must not hide later batches.
    """
    end_offset = segment.base_offset
    if segment.tail.size:
        segment.read_index()
        entry = segment.index.last()
        try:
            for found in segment.walk(0 if entry is None else entry.position):
                end_offset = found.batch.last_offset + 1
        except CorruptMessage:
            return False
    return end_offset == offset


def _last_append_time(
    segments: Sequence[Segment], back_offset: int, stamps: Mapping[int, int | None]
) -> int | None:
    """Return the last stored append time, from the newest segment with one, or a later batch time.

    Segments before `back_offset` do not count. `stamps` are the largest LogAppendTime times in each
    segment, by base offset: if an append time is lost, they show how far the append clock had come.
    """
    found, last_time = False, None
    for segment in reversed(segments):
        if segment.base_offset < back_offset:
            break
        if not found:
            last_time = later(last_time, segment.append_times.last_time)
            found = segment.append_times.last_time is not None
        last_time = later(stamps.get(segment.base_offset), last_time)
    return last_time


def listed(directory: Path) -> Directory:
    """List the segment files in a partition's directory. Raises OSError."""
    bases, snapshot_offsets = [], []
    for path in directory.iterdir():
        file = filenames.parse_segment_file(path.name)
        if file is None:
            continue
        if file.suffix == filenames.LOG_SUFFIX:
            bases.append(file.offset)
        elif file.suffix == filenames.SNAPSHOT_SUFFIX:
            snapshot_offsets.append(file.offset)
    return Directory(sorted(bases), sorted(snapshot_offsets))


def _recover(
    segments: list[Segment],
    recovery_point: int,
    index_interval_bytes: int,
    *,
    log_start_offset: int,
    gaps_end: int,
    may_end_in_gap: bool,
    known: PartitionTimes | None,
    cut_offset: int,
) -> dict[int, int | None]:
    """Check the log from the recovery point on, cut it, and drop the segments after a cut.

    No batch of the last segment that reaches `cut_offset` is kept. With `may_end_in_gap` the log
    may end with an empty segment after a gap; otherwise consumers would only wait there. Segments
    before the log's start have been deleted, but a power loss may restore any part of them: they
    are cut, and the log continues all the same. Returns the largest LogAppendTime time in each
    segment, by base offset.
    """
    stamps: dict[int, int | None] = {}
    covered_offset = recovery_point if known is None else max(known.covered_offset, recovery_point)
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if not is_last and segment.tail.end_offset <= recovery_point:
            continue
        size = segment.tail.size
        limit = verification.NO_LIMIT if is_last else segment.tail.end_offset
        times_size = segment.append_times.size()
        segment.append_times.check(covered_offset)
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
        segment.cut(checked.tail if not is_gone else Tail(limit, checked.tail.size))
        is_changed = (checked.tail.size, segment.append_times.size()) != (size, times_size)
        if is_changed or gaps_end == gaps.ANYWHERE:
            segment.sync()  # the cut must be durable, and so must data with gaps
        if is_whole or is_gone:
            continue
        _log.warning(
            "log cut",
            extra={
                "segment": segment.path,
                "end_offset": checked.tail.end_offset,
                "kept_bytes": checked.tail.size,
                "dropped_bytes": size - checked.tail.size,
                "dropped_segments": len(segments) - 1 - number,
            },
        )
        for behind in reversed(later):
            _drop(behind)
        del segments[number + 1 :]
        break
    if gaps_end == gaps.ANYWHERE:
        files.sync(segments[-1].directory)
    return stamps


def _drop(segment: Segment) -> None:
    """Remove a segment after a cut; a segment that another program wrote is renamed instead."""
    if segment.tail.size and not segment.append_times.is_complete:
        away = leftovers.set_aside(segment.path)
        _log.warning("segment behind a cut set aside", extra={"file": away})
    segment.remove()


def _drop_empty(segments: list[Segment], log_start_offset: int, gaps_end: int) -> None:
    """Remove the first segments if they are empty: the log begins where it can be read.

    Compaction may have left a segment empty; that one stays.
    """
    while len(segments) > 1 and not segments[0].tail.size:
        following = segments[1].base_offset
        if log_start_offset < following <= gaps_end < gaps.ANYWHERE:
            return
        segments.pop(0).remove()


# --- snapshots of producers ----------------------------------------------------------------------


def _drop_later_snapshots(directory: Path, offsets: Sequence[int], end_offset: int) -> None:
    """Remove producer snapshots after a cut, durably: other batches will get these offsets."""
    later = [offset for offset in offsets if offset > end_offset]
    for offset in later:
        files.unlink(filenames.snapshot_path(directory, offset))
    if later:
        files.sync(directory)


def remove_stray_snapshots(directory: Path, segments: Sequence[Segment]) -> None:
    """Remove all producer snapshots except those at the start of a segment or at the log's end."""
    wanted = {segment.base_offset for segment in segments} | {segments[-1].tail.end_offset}
    for offset in listed(directory).snapshot_offsets:
        if offset not in wanted:
            files.unlink(filenames.snapshot_path(directory, offset))
