"""Log directories: their partitions, the end of each, and how their segments are cut into splits.

The directories belong to tidelog or Apache Kafka, and their broker may be running, or they may be
copies. A path may also be the directory of one partition. The high watermark comes from
`replication-offset-checkpoint`, which may be a little old. `.deleted`, `.cleaned` and `.swap` files
are ignored. The exception is a `.swap` whose log is gone: a broker must first complete that
compaction, and a running one soon does. Other partitions can be read meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipeline.source import locations
from tidelog.pipeline.source.append_times import append_times_until, times_of
from tidelog.pipeline.source.batch_headers import Batches, header_at
from tidelog.pipeline.source.splits import (
    HIGH_WATERMARK,
    READ_COMMITTED,
    NotThere,
    PartitionLog,
    Segment,
    SegmentPart,
    SourceError,
    Split,
)
from tidelog.pipeline.source.transactions import last_stable_offset
from tidelog.storage import checkpoints, filenames
from tidelog.storage.segment import offset_index
from tidelog.storage.segment.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from tidelog.storage.time.lookup import reaches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog.pipeline.source.splits import OffsetRange, Selection
    from tidelog.protocol.topic_partition import TopicPartition

_SMALL = 1 << 20  # a log up to this size is read from its start, without its index


def plan(selection: Selection, roots: Sequence[str]) -> list[Split]:
    """Cuts the wanted partitions of log directories into splits. Raises SourceError and OSError."""
    return [
        split for log in _wanted(selection, roots) for split in _Planner(log, selection).splits()
    ]


def ranges(selection: Selection, roots: Sequence[str]) -> dict[TopicPartition, OffsetRange]:
    """Returns start and end of the wanted partitions. Raises SourceError and OSError."""
    return {
        (log.topic, log.partition): _Planner(log, selection).range()
        for log in _wanted(selection, roots)
    }


def topic_ids(selection: Selection, roots: Sequence[str]) -> dict[str, str]:
    """Returns the id of each wanted topic as far as a directory has it. Raises as `ranges`."""
    found: dict[str, str] = {}
    for log in _wanted(selection, roots):
        location = locations.join(log.directory, filenames.PARTITION_METADATA_FILE)
        data = locations.read(location)
        try:
            topic_id = data and str(checkpoints.parse_metadata(location, data))
        except checkpoints.CheckpointError as error:
            raise SourceError(str(error)) from error
        if topic_id and found.setdefault(log.topic, topic_id) != topic_id:
            raise SourceError(
                f"{log.directory} is of the topic with id {topic_id}, and other partitions of"
                f" {log.topic} are of {found[log.topic]}: it was created again, or copied in part"
            )
    return found


def _wanted(selection: Selection, roots: Sequence[str]) -> list[PartitionLog]:
    """Finds the wanted partitions, in order."""
    logs = find(roots)
    selection.check_found({topic for topic, _ in logs})
    selection.check_partitions(set(logs))
    wanted = [logs[key] for key in sorted(logs) if selection.wants_partition(key)]
    for log in wanted:
        if log.unfinished is not None:
            raise SourceError(
                f"{log.directory} has {log.unfinished} and no log in its place: a compaction was"
                " interrupted, or is at work; try again, or let a broker open the directory once"
            )
    return wanted


def find(roots: Sequence[str]) -> dict[TopicPartition, PartitionLog]:
    """Finds every partition of log directories. Raises SourceError for one that occurs twice."""
    logs: dict[TopicPartition, PartitionLog] = {}
    for root in roots:
        for log in _logs_of(root):
            key = log.topic, log.partition
            if key in logs:
                raise SourceError(f"{log.name} is in {logs[key].directory} and in {log.directory}")
            logs[key] = log
    return logs


def _logs_of(root: str) -> Iterator[PartitionLog]:
    """Yields the partitions of a log directory, or of the directory of one partition."""
    try:
        entries = locations.listed(root)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotThere(f"{root} is not a directory") from error
    own = filenames.parse_partition_directory(locations.base_name(root))
    if own is not None and any(e.name.endswith(filenames.LOG_SUFFIX) for e in entries):
        above = _about(locations.parent(root))
        yield _log(own, root, entries, above)
        return
    about = _about(root)
    for entry in entries:
        parsed = filenames.parse_partition_directory(entry.name)
        if parsed is None or not entry.is_directory or parsed[0] == filenames.METADATA_LOG:
            continue
        directory = locations.join(root, entry.name)
        try:
            inside = locations.listed(directory)
        except FileNotFoundError:  # the topic was deleted meanwhile
            continue
        yield _log(parsed, directory, inside, about)


class _About(NamedTuple):
    """What the files of a log directory say about its partitions."""

    watermarks: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]
    was_clean: bool


def _about(root: str) -> _About:
    return _About(
        _checkpoint(root, filenames.HIGH_WATERMARK_CHECKPOINT),
        _checkpoint(root, filenames.LOG_START_CHECKPOINT),
        locations.read(locations.join(root, filenames.CLEAN_SHUTDOWN_FILE)) is not None,
    )


def _log(
    key: TopicPartition, directory: str, entries: Sequence[locations.DirectoryEntry], about: _About
) -> PartitionLog:
    sizes: dict[int, int] = {}
    suffixes: dict[int, set[str]] = {}
    snapshots = []
    for entry in entries:
        file = filenames.parse_segment_file(entry.name)
        if file is None:
            continue
        suffixes.setdefault(file.offset, set()).add(file.suffix)
        if file.suffix == filenames.LOG_SUFFIX:
            sizes[file.offset] = entry.size
        elif file.suffix == filenames.SNAPSHOT_SUFFIX:
            snapshots.append(file.offset)
    segments = [
        Segment(directory, base, sizes[base], frozenset(suffixes[base])) for base in sorted(sizes)
    ]
    return PartitionLog(
        *key,
        directory,
        segments,
        about.watermarks.get(key),
        about.starts.get(key, 0),
        about.was_clean,
        snapshots,
        _unfinished(entries, sizes),
    )


def _unfinished(entries: Sequence[locations.DirectoryEntry], sizes: dict[int, int]) -> str | None:
    """Returns the name of a `.swap` file whose log compaction has removed but not yet replaced."""
    ending = filenames.LOG_SUFFIX + filenames.SWAP_SUFFIX
    for entry in entries:
        if entry.name.endswith(ending):
            file = filenames.parse_segment_file(entry.name.removesuffix(filenames.SWAP_SUFFIX))
            if file is not None and file.offset not in sizes:
                return entry.name
    return None


def _checkpoint(root: str, name: str) -> dict[TopicPartition, int]:
    location = locations.join(root, name)
    data = locations.read(location)
    if not data:  # Kafka creates them empty
        return {}
    try:
        return checkpoints.parse_offsets(location, data)
    except checkpoints.CheckpointError as error:
        raise SourceError(str(error)) from error


class _Planner:
    """Cuts one log into splits."""

    def __init__(self, log: PartitionLog, selection: Selection) -> None:
        self._log = log
        self._selection = selection
        self._times = times_of(log)
        self._active_size = 0

    def range(self) -> OffsetRange:
        """Returns the first offset to read, and the end offset."""
        log = self._log
        start = log.log_start_offset
        if self._times is not None:
            start = max(start, self._times.log_start_offset)
        end = start
        if log.segments:
            start = max(start, log.segments[0].base_offset)
            end, self._active_size = self._end()
        return self._selection.range_of((log.topic, log.partition), start, max(end, start))

    def splits(self) -> list[Split]:
        """Returns the splits of the log, in the order of their offsets."""
        log = self._log
        if not log.segments:
            return []
        start, end = self.range()
        until = append_times_until(log, self._times)
        splits = []
        following = [each.base_offset for each in log.segments[1:]]
        for segment, end_offset in zip(log.segments, [*following, end], strict=True):
            is_active = segment is log.segments[-1]
            low, high = max(start, segment.base_offset), min(end, end_offset)
            if low >= high or self._is_pruned(segment, is_active=is_active):
                continue
            stop = self._active_size if is_active else segment.size
            for cut in self._cut(segment, low, high, stop):
                first, last, begin, finish = cut
                part = SegmentPart(
                    segment.location(),
                    segment.base_offset,
                    begin,
                    finish,
                    is_active,
                    until,
                    not is_active or log.was_clean,
                    segment.size,
                )
                splits.append(
                    Split(
                        log.topic,
                        log.partition,
                        first,
                        last,
                        finish - begin,
                        part,
                    )
                )
        return splits

    def _end(self) -> tuple[int, int]:
        """Returns the end offset to read, and the size of the last segment's complete batches."""
        log, selection = self._log, self._selection
        active = log.segments[-1]
        watermark = log.high_watermark
        if watermark is None and selection.upto == HIGH_WATERMARK:
            raise SourceError(
                f"no {filenames.HIGH_WATERMARK_CHECKPOINT} contains the high watermark of {log.name}:"
                " upto=log-end reads all there is"
            )
        with locations.File(active.location()) as file:
            position, end = self._near_end(file, active)
            batches = Batches(file, position, check=True)
            for batch, _ in batches:
                end = batch.last_offset + 1
        end = max(end, active.base_offset)
        if selection.upto == HIGH_WATERMARK:
            assert watermark is not None
            if watermark > end:
                raise SourceError(
                    f"the high watermark of {log.name} is {watermark}, but its log ends at offset"
                    f" {end} ({active.location()}: {batches.why_ended}): it was truncated, or copied in part;"
                    " upto=log-end reads what is there"
                )
            end = watermark
        if selection.isolation == READ_COMMITTED:
            end = min(end, last_stable_offset(log, end))
        return end, batches.position

    def _near_end(self, file: locations.File, active: Segment) -> tuple[int, int]:
        """Returns a position of a batch near the end of a log, and the offset before it."""
        if file.size > _SMALL:
            found = _first_true(file, reversed(_index_entries(active)), file.size)
            if found is not None:
                return found[1], found[0]
        return 0, active.base_offset

    def _cut(
        self, segment: Segment, low: int, high: int, stop: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yields (first offset, end offset, position, end position) of the parts of a segment."""
        most = self._selection.split_bytes
        begin, first = 0, low
        if low > segment.base_offset or stop > most:
            entries = _index_entries(segment)
            positions = [position for _, position in entries]
            with locations.File(segment.location()) as file:
                before = bisect_left(entries, (low, -1))
                found = _first_true(file, reversed(entries[:before]), stop)
                if found is not None:
                    begin = found[1]
                while stop - begin > most:
                    near = bisect_right(positions, begin + most)
                    inner = reversed(entries[bisect_right(positions, begin) : near])
                    found = _first_true(file, chain(inner, entries[near:]), stop)
                    if found is None or found[0] >= high:
                        break
                    yield first, found[0], begin, found[1]
                    first, begin = found
        if begin < stop:
            yield first, high, begin, stop

    def _is_pruned(self, segment: Segment, *, is_active: bool) -> bool:
        """Returns whether no record of a segment can have a wanted time."""
        low = self._selection.low_time
        if low is None:
            return False
        for line in self._times.segments if self._times is not None else ():
            if (line.base_offset, line.size) == (
                segment.base_offset,
                segment.size,
            ) and line.is_true:
                return not reaches(line.times.largest, low)
        if not self._selection.trust_time_index or is_active:
            return False
        if filenames.TIME_INDEX_SUFFIX not in segment.suffixes:
            return False
        data = locations.read(segment.location(filenames.TIME_INDEX_SUFFIX)) or b""
        largest = max(
            (
                int.from_bytes(data[at : at + 8], "big", signed=True)
                for at in range(0, len(data) - TIME_ENTRY_SIZE + 1, TIME_ENTRY_SIZE)
            ),
            default=None,
        )
        return largest is not None and largest > 0 and not reaches(largest, low)


def _first_true(
    file: locations.File, entries: Iterable[tuple[int, int]], stop: int
) -> tuple[int, int] | None:
    """Returns offset and position after the first batch that agrees with its index entry."""
    for offset, position in entries:
        head = header_at(file, position, stop)
        if head is not None and head.last_offset == offset:
            return offset + 1, position + head.size
    return None


def _index_entries(segment: Segment) -> list[tuple[int, int]]:
    """Reads the entries of a segment's index: (last offset of a batch, its position), ascending."""
    if filenames.OFFSET_INDEX_SUFFIX not in segment.suffixes:
        return []
    data = locations.read_index(segment.location(filenames.OFFSET_INDEX_SUFFIX)) or b""
    entries: list[tuple[int, int]] = []
    last_offset, last_position = -1, -1
    for relative, position in zip(*offset_index.parse(data), strict=True):
        if relative <= last_offset or position <= last_position:
            break
        last_offset, last_position = relative, position
        entries.append((segment.base_offset + relative, position))
    return entries
