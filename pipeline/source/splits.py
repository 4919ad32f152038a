"""`Split`, the unit that is read in one piece, and `Selection`, what is wanted of logs.

`access.plan` cuts the logs of directories or of a cluster into splits with fixed offsets. A split
is a range of offsets of one partition and where to read it: a part of one segment file, or brokers.
The splits of a partition do not overlap, leave nothing out, and come in the order of their offsets.
What is read does not depend on where they are cut. A segment is cut only where its `.index` points
to a complete batch with the right offset and CRC: an index is a hint, and a wrong one costs a cut,
never a record.

A range of event times skips what cannot contain such a record: segments by `partition.times` if it
describes the file as it is; segments by `.timeindex` only if `trust_time_index` is set, because no
index proves itself; and batches of a split by their headers, when it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from tidelog.client.errors import public
from tidelog.pipeline.source import locations
from tidelog.storage import filenames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.protocol.topic_partition import TopicPartition

HIGH_WATERMARK: Final = "high-watermark"
LOG_END: Final = "log-end"
READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"

SPLIT_BYTES: Final = 128 << 20
SPLIT_OFFSETS: Final = 4_000_000  # for brokers, which do not report bytes

RECORD_BYTES: Final = 100
"""The assumed size of a record where brokers are read, which do not report sizes."""

NO_END: Final = 2**63 - 1
_OPENING_BYTES: Final = 1 << 20  # the cost of opening a segment or asking a broker, in bytes read
_LEAST_GROUPS: Final = 32
_LEAST_BYTES: Final = 16 << 20  # of less a task takes no longer than Spark takes to start it
ALL_TRUSTED: Final = 2**63 - 1

OffsetRange = tuple[int, int]  # the first offset, and the one after the last


@public("tidelog.spark")
class SourceError(Exception):
    """Something cannot be planned or read; the message is a sentence for the user."""


@public("tidelog.spark")
class NotThere(SourceError):
    """A topic, a directory or logs that the user named do not exist: a mistake of the user's."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment: its log, and the suffixes of its other files."""

    directory: str
    base_offset: int
    size: int
    suffixes: frozenset[str]

    def location(self, suffix: str = filenames.LOG_SUFFIX) -> str:
        """Returns the location of one of its files."""
        return locations.join(self.directory, filenames.segment_file(self.base_offset, suffix))


@dataclass(slots=True)
class PartitionLog:
    """One partition's log in a log directory."""

    topic: str
    partition: int
    directory: str
    segments: list[Segment]
    high_watermark: int | None
    log_start_offset: int
    was_clean: bool
    snapshots: list[int] = field(default_factory=list)
    unfinished: str | None = None

    @property
    def name(self) -> str:
        """The partition as text for people."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A part of a segment: complete batches from position `start` to `end` of the file `location`."""

    location: str
    base_offset: int
    start: int
    end: int
    is_active: bool  # the last segment of its log
    append_times_until: int  # entries of .appendtimes from this offset on are not confirmed
    is_closed: bool = False  # .appendtimes has to end with an END entry
    file_size: int = 0  # of the whole file when it was planned; only an active segment may grow


@dataclass(frozen=True, slots=True)
class Split:
    """One piece: the records of a partition from `start_offset` to before `end_offset`.

    `size_bytes` is the approximate number of bytes to read. It is read from `part`, or if that is
    None from the cluster of `brokers`. A split is plain data: it can be pickled, compared and sorted.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    part: SegmentPart | None = None
    brokers: str | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """The filters of a selection: only these topics and partitions (None: all), and offsets."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    low_offset: int = 0
    end_offset: int = NO_END


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of logs are wanted.

    `topics`: names, or one regular expression for whole names (`pattern`); none: every topic but
    Kafka's own (`__...`). `low_time` and `high_time` are event times in ms, the first included, the
    second not. `upto`: the high watermark, or (for log directories only) the end of the log.
    `offsets`: a fixed range (start, end) for each partition. Then only those partitions are read,
    and the range begins at the log start if that is larger. Offsets that are gone are an error
    unless `allow_gone`. `assigned`: only these partitions. What is not `within` is left out too, and
    need not exist. `rack` is that of the reader (KIP-392), if any.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    low_time: int | None = None
    high_time: int | None = None
    upto: Literal["high-watermark", "log-end"] = HIGH_WATERMARK
    isolation: Literal["read_uncommitted", "read_committed"] = READ_UNCOMMITTED
    split_bytes: int = SPLIT_BYTES
    split_offsets: int = SPLIT_OFFSETS
    trust_time_index: bool = False
    offsets: Mapping[TopicPartition, OffsetRange] | None = None
    allow_gone: bool = False
    assigned: frozenset[TopicPartition] | None = None
    within: Within = Within()
    rack: str = ""

    def __post_init__(self) -> None:
        """Raises SourceError for an impossible selection."""
        if self.topics and self.pattern is not None:
            raise SourceError("give topics by name or by a pattern, not both")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise SourceError(f"'{self.pattern}' is no regular expression: {error}") from error
        if self.split_bytes < 1 or self.split_offsets < 1:
            raise SourceError("a split cannot be smaller than one byte or one offset")
        if self.upto not in (HIGH_WATERMARK, LOG_END):
            raise SourceError(f"upto is {HIGH_WATERMARK} or {LOG_END}, not '{self.upto}'")
        if self.isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise SourceError(
                f"isolation is {READ_UNCOMMITTED} or {READ_COMMITTED}, not '{self.isolation}'"
            )

    @property
    def is_timed(self) -> bool:
        """Whether event times limit what is read."""
        return self.low_time is not None or self.high_time is not None

    def wants(self, topic: str) -> bool:
        """Returns whether a topic is selected."""
        if self.within.topics is not None and topic not in self.within.topics:
            return False
        if self.topics:
            return topic in self.topics
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return not topic.startswith("__")

    def wants_partition(self, key: TopicPartition) -> bool:
        """Returns whether a partition is selected."""
        if self.offsets is not None and key not in self.offsets:
            return False
        if self.assigned is not None and key not in self.assigned:
            return False
        among = self.within.partitions
        return self.wants(key[0]) and (among is None or key[1] in among)

    def check_found(self, found: set[str]) -> None:
        """Raises NotThere if a named topic does not exist."""
        missing = sorted(set(self.topics) - found)
        if missing:
            raise NotThere(f"there is no topic {', '.join(missing)}")

    def check_partitions(self, found: set[TopicPartition]) -> None:
        """Raises SourceError if a partition that is named does not exist."""
        for topic, partition in sorted({*(self.offsets or ()), *(self.assigned or ())} - found):
            raise SourceError(f"there is no partition {topic}-{partition}")

    def range_of(self, key: TopicPartition, start: int, end: int) -> OffsetRange:
        """Returns the offsets to read of a partition whose log goes from `start` to before `end`.

        Raises SourceError if the log does not have a fixed range (any more).
        """
        first, last = self._frozen(key, start, end)
        first = max(first, self.within.low_offset)
        last = min(last, self.within.end_offset)
        return first, max(first, last)

    def _frozen(self, key: TopicPartition, start: int, end: int) -> OffsetRange:
        if self.offsets is None:
            return start, end
        first, last = self.offsets.get(key, (0, 0))
        name = f"{key[0]}-{key[1]}"
        if first >= last:
            return start, start
        if first < start:
            if not self.allow_gone:
                raise SourceError(
                    f"{name} begins at offset {start}: {first} to {start - 1} are gone (retention)"
                )
            first = min(start, last)
        if last > end:
            raise SourceError(f"{name} ends at offset {end}: there is no {end} to {last - 1}")
        return first, last


def cut(splits: Sequence[Split], most_offsets: int) -> list[Split]:
    """Cuts splits at offsets, so that none has more than `most_offsets`.

    Parts of a file are then read from the same position: each skips the batches before its own.
    """
    return [
        replace(
            split,
            start_offset=low,
            end_offset=min(low + most_offsets, split.end_offset),
            size_bytes=-(
                -split.size_bytes * most_offsets // (split.end_offset - split.start_offset)
            ),
        )
        if split.end_offset - split.start_offset > most_offsets
        else split
        for split in splits
        for low in range(split.start_offset, split.end_offset, most_offsets)
    ]


def grouped(
    splits: Sequence[Split], most_bytes: int = SPLIT_BYTES, most_offsets: int = NO_END
) -> list[list[Split]]:
    """Groups small neighbouring splits, in order: a task costs as much as reading some megabytes.

    Groups are about equally large. No group of several is larger than `most_bytes` or has more than
    `most_offsets`, and there are dozens of groups if there is enough to read.
    """
    costs = [split.size_bytes + _OPENING_BYTES for split in splits]
    total = sum(costs)
    most = min(most_bytes, max(total // _LEAST_GROUPS, _LEAST_BYTES))
    aim = total / max(1, -(-total // most))
    groups: list[list[Split]] = []
    size = count = 0
    for split, cost in zip(splits, costs, strict=True):
        offsets = split.end_offset - split.start_offset
        is_full = size + cost > most_bytes or count + offsets > most_offsets
        if not groups or is_full or size + cost / 2 > aim:
            groups.append([])
            size = count = 0
        groups[-1].append(split)
        size, count = size + cost, count + offsets
    return groups


def offsets_of(splits: Sequence[Split]) -> dict[TopicPartition, OffsetRange]:
    """Returns start and end offset of each partition's splits, as in `Selection.offsets`."""
    ranges: dict[TopicPartition, OffsetRange] = {}
    for split in splits:
        key = split.topic, split.partition
        start, end = ranges.get(key, (split.start_offset, split.end_offset))
        ranges[key] = min(start, split.start_offset), max(end, split.end_offset)
    return ranges
