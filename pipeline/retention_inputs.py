"""Reads what retention would judge of a log directory, beside a running broker or without one.

It changes nothing. In a directory of tidelog, `partition.times` has what the broker knows; what was
appended since is read from the log, as the broker does. In a log of Apache Kafka, everything is
read once from the records, and batches count as appended now: a broker that opened the directory
would adopt them. The modification times of files stand in where Kafka's rules are tried. Everything
below the log end counts as visible to consumers.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipeline.engine.whatif import Future, LogSegment, SimulatedLog
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import find_time
from tidelog.storage import checkpoints, filenames
from tidelog.storage.log.recovery import listing
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.log_times import LogTimes
from tidelog.storage.segment.segment import Segment
from tidelog.storage.time.adoption import Adoptions
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.log_file import LogFile
    from tidelog.storage.segment.offset_index import OffsetIndex
    from tidelog.storage.segment.segment_files import SegmentFiles
    from tidelog.storage.segment.time_index import TimeIndex

_MS_PER_NS = 1_000_000
_TRIES = 5


class PartitionDirectory(NamedTuple):
    """A partition in a log directory."""

    topic: str
    partition: int
    directory: Path

    @property
    def size_bytes(self) -> int:
        """The size of the log's files. A file that is deleted meanwhile counts as empty."""
        size = 0
        for path in self.directory.glob(f"*{filenames.LOG_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size


def partitions(log_directory: Path, wants: Callable[[str], bool]) -> list[PartitionDirectory]:
    """Lists the partitions of the wanted topics. Raises OSError."""
    found = []
    for path in log_directory.iterdir():
        named = filenames.parse_partition_directory(path.name)
        if named is not None and path.is_dir() and wants(named[0]):
            found.append(PartitionDirectory(*named, path))
    return sorted(found)


def read(
    partition: PartitionDirectory, *, event_slack_ms: int, now_ms: int, margin_ms: int = 0
) -> SimulatedLog:
    """Reads what retention decides by: log start, segments, and their sizes and times.

    `event_slack_ms`: how far beyond its append time an event time counts, where it is read from the
    log. `margin_ms`: a segment whose largest record time is later than `now_ms` by more than this
    names that record. If the broker deletes a segment meanwhile, everything is read again. Raises OSError and
    CorruptMessage.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return _read(partition, event_slack_ms, now_ms, margin_ms)
    return _read(partition, event_slack_ms, now_ms, margin_ms)


def _read(
    partition: PartitionDirectory, event_slack_ms: int, now_ms: int, margin_ms: int
) -> SimulatedLog:
    directory = partition.directory
    log_directory = directory.parent
    was_clean = (log_directory / filenames.CLEAN_SHUTDOWN_FILE).exists()
    known = partition_times.read(directory)
    segments = _segments(directory, known, event_slack_ms, now_ms, was_clean=was_clean)
    if segments and (known is None or was_clean):
        doubt_from = segments[0].base_offset if known is None else known.covered_offset
        for segment in segments:
            segment.known.doubt_from = doubt_from
    start = _log_start(log_directory, partition, known)
    segments_read = tuple(_described(segment, now_ms + margin_ms) for segment in segments)
    largest = None if known is None else known.max_event_time
    for each in segments_read:
        largest = later(each.times.event, largest)
    end_offset = segments_read[-1].end_offset if segments_read else start
    first = segments_read[0].base_offset if segments_read else start
    return SimulatedLog(
        partition.topic, partition.partition, segments_read, max(start, first), end_offset, largest
    )


def _segments(
    directory: Path, known: PartitionTimes | None, slack_ms: int, now_ms: int, *, was_clean: bool
) -> list[_Unchanged]:
    """Describes the segments, up to the last complete batch of each."""
    bases = listing.listed(directory).base_offsets
    lines = {line.base_offset: line for line in known.segments} if known is not None else {}
    found = []
    for number, base in enumerate(bases):
        path = directory / filenames.segment_file(base, filenames.LOG_SUFFIX)
        size = path.stat().st_size
        is_last = number == len(bases) - 1
        line = lines.get(base)
        if line is not None and (line.size > size or (was_clean and line.size < size)):
            line = None  # it describes another file
        end_offset = base if is_last else bases[number + 1]
        segment = _Unchanged(directory, base, Tail(end_offset, size))
        segment.known.event_slack_ms = slack_ms
        segment.known.is_closed = was_clean or not is_last
        segment.known.adoptions = Adoptions(() if known is None else known.adopted, now_ms)
        if is_last:
            known_end = Tail(base, 0) if line is None else Tail(line.end_offset, line.size)
            segment.log.tail = _whole(segment, known_end, size)
        if line is not None:
            segment.adopt(line, is_true=line.is_true, covered_offset=line.end_offset)
        found.append(segment)
    return found


def _whole(segment: Segment, tail: Tail, size: int) -> Tail:
    """Returns the end of the last complete batch, starting from a position where a batch begins."""
    try:
        for found in segment.walk(tail.size, size):
            tail = Tail(found.batch.last_offset + 1, found.position + found.batch.size)
    except CorruptMessage:
        return tail
    return tail


def _log_start(
    log_directory: Path, partition: PartitionDirectory, known: PartitionTimes | None
) -> int:
    try:
        starts = checkpoints.read_offsets(log_directory / filenames.LOG_START_CHECKPOINT)
    except checkpoints.CheckpointError:
        starts = {}
    start = starts.get((partition.topic, partition.partition), 0)
    return start if known is None else max(start, known.log_start_offset)


def _described(segment: _Unchanged, future_ms: int) -> LogSegment:
    times = segment.known.times
    if segment.known.size < segment.tail.size:
        times.has_unknown |= segment.known.doubt_from < segment.tail.end_offset
        times = segment.times
    appended = segment.known.append_times.known_runs(segment.tail.end_offset)
    first = appended[0][0] if appended else segment.tail.end_offset
    if segment.tail.size and first > segment.base_offset:
        times.has_unknown = True
    future = None
    if times.largest is not None and times.largest > future_ms:
        future = _future(segment, times.largest, times.largest_offset)
    return LogSegment(
        segment.base_offset,
        segment.tail.end_offset,
        segment.tail.size,
        times,
        appended,
        segment.path.stat().st_mtime_ns // _MS_PER_NS,
        future,
    )


def _future(segment: Segment, timestamp_ms: int, offset: int) -> Future:
    """Finds the record with a segment's largest time; `offset` is an offset in its batch."""
    for found in segment.walk():
        if found.batch.last_offset >= offset:
            with contextlib.suppress(CorruptMessage):
                hit = find_time(found.buffer, found.batch, timestamp_ms, segment.base_offset)
                offset = offset if hit is None else hit[0]
            return Future(offset, timestamp_ms, found.batch.producer_id)
    return Future(offset, timestamp_ms, -1)


class _ReadTimes(AppendTimes):
    """Append times that are never written; they are unknown from a doubtful offset on."""

    __slots__ = ("doubt_from",)

    doubt_from: int

    def at(self, offset: int) -> int | None:
        return None if offset >= self.doubt_from else super().at(offset)

    def known_runs(self, end_offset: int) -> tuple[tuple[int, int], ...]:
        """Returns pairs (first offset, append time) of batches; none before an unknown time."""
        runs: list[tuple[int, int]] = []
        if end_offset > self.doubt_from:
            return ()
        for time, relative_offset in self.entries() if len(self) else ():
            if time == UNKNOWN:
                runs.clear()
            elif relative_offset + self.base_offset < end_offset:
                runs.append((relative_offset + self.base_offset, time))
        return tuple(runs)


class _KnownTimes(LogTimes):
    """What is known of a segment's times, with append times that are not repaired."""

    __slots__ = ("doubt_from",)

    def __init__(self, log: LogFile, files: SegmentFiles) -> None:
        super().__init__(log, files)
        self.doubt_from = 2**63

    @property
    def append_times(self) -> _ReadTimes:
        times = self._append_times
        if not isinstance(times, _ReadTimes):
            file = self._files.of(filenames.APPEND_TIMES_SUFFIX)
            times = self._append_times = _ReadTimes(file, self._files.base_offset)
            times.load()
            if self.is_closed:
                times.close_at(self.log.tail.end_offset)
            times.doubt_from = max(self.doubt_from, times.end_offset)
        return times


class _Unchanged(Segment):
    """A segment whose files are never written: its indexes and append times are not repaired."""

    __slots__ = ()

    known: _KnownTimes

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        super().__init__(directory, base_offset, tail)
        self.known = _KnownTimes(self.log, self.files)

    @property
    def index(self) -> OffsetIndex:
        raise AssertionError("an index may have to be written")

    @property
    def time_index(self) -> TimeIndex:
        raise AssertionError("an index may have to be written")
