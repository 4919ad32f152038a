"""The contents of an archive according to its manifests, one for each run; nothing else counts.

The manifest of an `archive` run lists the ranges of offsets that it read and the files that it
wrote. The manifest of a `compact` run lists files, and the files that they replace. A file is in
force if it is listed and not replaced. The ranges of a partition neither overlap nor have gaps,
except gaps that were accepted; the manifest lists those too. A file that `compact` wrote may hold
several partitions of one date; it is listed once for each. This module needs no pyarrow and reads no
clock.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.pipeline.archive.store import FileStore
    from tidelog.pipeline.source.splits import OffsetRange
    from tidelog.protocol.topic_partition import TopicPartition

DIRECTORY: Final = "_manifest"
ARCHIVE: Final = "archive"
COMPACT: Final = "compact"
_SUFFIX: Final = ".json"
_VERSION: Final = 2
_KNOWN: Final = frozenset({1, 2})  # 1: each file holds one partition


class File(NamedTuple):
    """The records of one partition in a file of one date; the file may have other partitions too.

    The date is None for records without a time. `size_bytes` and `crc32c` are those of the whole file,
    all else is about the records of this partition.
    """

    path: str
    topic: str
    partition: int
    event_date: str | None
    first_offset: int
    last_offset: int
    records: int
    size_bytes: int
    column_bytes: int  # unpacked
    crc32c: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None

    @property
    def key(self) -> TopicPartition:
        """The partition of these records."""
        return self.topic, self.partition

    @property
    def read_bytes(self) -> int:
        """About how many bytes are read for these records alone."""
        return min(self.size_bytes, self.column_bytes)


class Range(NamedTuple):
    """A range of offsets of a partition, and how many of them have a record.

    It goes from `start_offset` to before `end_offset`.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: int = 0

    @property
    def key(self) -> TopicPartition:
        """The partition of these offsets."""
        return self.topic, self.partition


class ArchivedTopic(NamedTuple):
    """A topic when it was archived: partitions, id (empty if unknown), and its own settings."""

    partitions: int
    topic_id: str
    timestamp_type: str | None
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one run."""

    run: str
    kind: str
    created_ms: int
    source: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    ranges: Sequence[Range] = ()
    gaps: Sequence[Range] = ()  # accepted: these offsets were deleted before they were read
    files: Sequence[File] = ()
    replaces: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name of its file."""
        return name_of(self.run)

    def refuse_other(self, kind: str) -> None:
        """Raises PipelineError if the run of this name was of another kind."""
        if self.kind != kind:
            raise PipelineError(
                f"run {self.run} of this archive was of {self.kind}, not of {kind}: choose another --run"
            )

    def encoded(self) -> bytes:
        """Returns the bytes of its file."""
        fields = {
            "version": _VERSION,
            **asdict(self),
            "topics": {name: one._asdict() for name, one in self.topics.items()},
            "ranges": [one._asdict() for one in self.ranges],
            "gaps": [one._asdict() for one in self.gaps],
            "files": [one._asdict() for one in self.files],
        }
        return (json.dumps(fields, indent=1) + "\n").encode()

    @classmethod
    def decoded(cls, data: bytes, location: str) -> Manifest:
        """Parses a manifest. Raises PipelineError."""
        try:
            fields = json.loads(data)
            version = fields.pop("version")
            if version not in _KNOWN:
                raise PipelineError(
                    f"{location} has version {version}: {max(_KNOWN)} and older are known here"
                )
            fields["topics"] = {
                name: ArchivedTopic(**one) for name, one in fields["topics"].items()
            }
            for name, kind in (("ranges", Range), ("gaps", Range), ("files", File)):
                fields[name] = tuple(kind(**one) for one in fields[name])
            return cls(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(f"{location} is no manifest of an archive: {error}") from error


def by_path(files: Iterable[File]) -> dict[str, list[File]]:
    """Returns the entries of each file, in the order in which the files are first named."""
    found: dict[str, list[File]] = {}
    for one in files:
        found.setdefault(one.path, []).append(one)
    return found


def name_of(run: str) -> str:
    """Returns the file name of a run's manifest."""
    return f"{DIRECTORY}/{run}{_SUFFIX}"


class Archive:
    """All manifests of an archive together."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self.manifests = sorted(manifests, key=lambda one: (one.created_ms, one.run))

    @classmethod
    def read(cls, store: FileStore, *, must_exist: bool = False) -> Archive:
        """Reads the manifests of an archive. Raises PipelineError and OSError.

        If it `must_exist`, it raises UsageError where there is none.
        """
        found = []
        for name in store.listed(DIRECTORY):
            if name.endswith(_SUFFIX) and not name.startswith("."):
                path = f"{DIRECTORY}/{name}"
                found.append(Manifest.decoded(store.read(path) or b"", store.full(path)))
        if must_exist and not found:
            raise UsageError(f"{store.location} is no archive: there is no manifest")
        return cls(found)

    @classmethod
    def sound(cls, store: FileStore) -> Archive:
        """Reads an archive to use its records. Raises PipelineError unless it is one and sound."""
        found = cls.read(store, must_exist=True)
        problems = found.problems()
        if problems:
            raise PipelineError(f"{store.location} is not sound: {problems[0]} (archive verify)")
        return found

    def of_run(self, run: str) -> Manifest | None:
        """Returns the manifest of a run, or None if the run has not ended."""
        return next((one for one in self.manifests if one.run == run), None)

    @property
    def replaced(self) -> frozenset[str]:
        """The files that other files have replaced."""
        return frozenset(path for one in self.manifests for path in one.replaces)

    @property
    def files(self) -> list[File]:
        """Returns the files in force, by partition and offset."""
        replaced = self.replaced
        found = [one for made in self.manifests for one in made.files if one.path not in replaced]
        return sorted(found, key=lambda one: (one.key, one.first_offset, one.path))

    @property
    def ranges(self) -> dict[TopicPartition, list[Range]]:
        """Returns the ranges of each partition, in order."""
        found: dict[TopicPartition, list[Range]] = {}
        for made in self.manifests:
            for one in made.ranges:
                found.setdefault(one.key, []).append(one)
        return {key: sorted(found[key], key=lambda one: one[2:]) for key in sorted(found)}

    @property
    def spans(self) -> dict[TopicPartition, OffsetRange]:
        """Returns the first and the end offset of what is archived of each partition."""
        return {
            key: (ranges[0].start_offset, max(one.end_offset for one in ranges))
            for key, ranges in self.ranges.items()
        }

    def topic(self, name: str) -> ArchivedTopic | None:
        """Returns a topic as the newest run knew it, with the most partitions it ever had."""
        known = [one.topics[name] for one in self.manifests if name in one.topics]
        if not known:
            return None
        settled = [one for one in known if one.timestamp_type is not None] or known
        return settled[-1]._replace(partitions=max(one.partitions for one in known))

    def with_files(self, files: Iterable[File]) -> Archive:
        """Returns an archive whose one manifest has no files, with these."""
        (made,) = self.manifests
        return Archive([replace(made, files=tuple(files))])

    def problems(self) -> list[str]:
        """Returns sentences that say where the manifests contradict each other."""
        found = []
        gaps = {one[:4] for made in self.manifests for one in made.gaps}
        files = self.files
        there: Counter[TopicPartition] = Counter()
        for file in files:
            there[file.key] += file.records
        for key, ranges in self.ranges.items():
            name = f"{key[0]}-{key[1]}"
            for before, after in itertools.pairwise(ranges):
                if after.start_offset < before.end_offset:
                    last = min(before.end_offset, after.end_offset) - 1
                    found.append(
                        f"{name}: offsets {after.start_offset} to {last} are archived twice"
                    )
                elif (
                    after.start_offset > before.end_offset
                    and (*key, before.end_offset, after.start_offset) not in gaps
                ):
                    found.append(
                        f"{name}: offsets {before.end_offset} to {after.start_offset - 1} are missing"
                    )
            counted = sum(one.records for one in ranges)
            if counted != there[key]:
                found.append(
                    f"{name}: {some(counted, 'record')} read, and its files have {there[key]}"
                )
        spans = self.spans
        found += [
            f"{one.path}: holds offsets {one.first_offset} to {one.last_offset} of"
            f" {one.topic}-{one.partition}, which no run archived"
            for one in files
            if not _is_within(one, spans.get(one.key, (0, 0)))
        ]
        named = Counter((one.path, *one.key) for one in files)
        found += [
            f"{path}: named {count} times for partition {partition}"
            for (path, _, partition), count in named.items()
            if count > 1
        ]
        twice = Counter(path for made in self.manifests for path in made.replaces)
        found += [f"{path}: replaced {count} times" for path, count in twice.items() if count > 1]
        return found


def _is_within(file: File, span: OffsetRange) -> bool:
    return span[0] <= file.first_offset and file.last_offset < span[1]
