"""Maintains an archive: `check` compares files with manifests, `merge` combines small files.

The small files of one date become one file, or a few of the size that is asked for, whatever
partitions their records are of. In the new file each partition has row groups of its own, in the
order of its offsets.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.archive import layout, manifests, writing
from tidelog.pipeline.archive.reading import merged
from tidelog.pipeline.errors import PipelineError
from tidelog.protocol.checksum import crc32c
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.archive.iceberg_files import TableFiles
    from tidelog.pipeline.archive.manifests import File
    from tidelog.pipeline.archive.store import FileStore


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file to check, with its entry in the manifests for each partition it holds."""

    store: FileStore
    parts: tuple[File, ...]

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read."""
        return self.parts[0].size_bytes


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """The files of one partition, whose offsets are to be checked together."""

    store: FileStore | TableFiles
    files: tuple[File, ...]

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""
        return sum(one.read_bytes for one in self.files)


class MergeGroup(NamedTuple):
    """Files of one topic and date that `merge` combines into one: their entries, by partition."""

    store: FileStore
    files: tuple[File, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of the files."""
        return tuple(manifests.by_path(self.files))

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""
        return sum(one.read_bytes for one in self.files)


class Merged(NamedTuple):
    """The entries of a new file, and the files that it replaces."""

    files: tuple[File, ...]
    replaces: tuple[str, ...]


# --- verify --------------------------------------------------------------------------------------


def check(item: WholeFile) -> list[str]:
    """Returns sentences that say what is wrong with a file. Raises OSError."""
    one = item.parts[0]
    data = item.store.read(one.path)
    if data is None:
        lost = some(sum(each.records for each in item.parts), "record")
        return [f"{one.path}: missing ({lost})"]
    if len(data) != one.size_bytes or crc32c(data) != one.crc32c:
        expected = f"{one.size_bytes} with {one.crc32c:08x}"
        there = f"{some(len(data), 'byte')} with CRC {crc32c(data):08x}"
        return [f"{one.path}: changed: {there}, written were {expected}"]
    table = pq.read_table(pa.BufferReader(data), columns=["partition", "offset", "timestamp_ms"])
    partitions = table.column("partition").to_numpy()
    others = set(partitions.tolist()) - {each.partition for each in item.parts}
    found = [f"{one.path}: holds records of partition {each} too" for each in sorted(others)]
    for each in item.parts:
        found += _check_part(each, table.filter(pa.array(partitions == each.partition)))
    return found


def check_order(partition: ArchivedPartition) -> list[str]:
    """Returns a sentence if an offset of a partition is there twice or out of order."""
    try:
        for _ in merged(partition.store, partition.files, ("offset", "timestamp_ms")):
            pass
    except PipelineError as error:
        return [str(error)]
    return []


def _check_part(file: File, table: Any) -> list[str]:
    offsets = table.column("offset").to_numpy()
    times = table.column("timestamp_ms").to_numpy()
    present = times[times != NO_TIMESTAMP]
    seen = (
        len(offsets),
        int(offsets[0]) if len(offsets) else None,
        int(offsets[-1]) if len(offsets) else None,
        int(present.min()) if len(present) else None,
        int(present.max()) if len(present) else None,
    )
    named = (
        file.records,
        file.first_offset,
        file.last_offset,
        file.min_timestamp_ms,
        file.max_timestamp_ms,
    )
    found = []
    if seen != named:
        found.append(
            f"{file.path}: holds {seen} of partition {file.partition}, and its manifest says {named}"
        )
    elif layout.dates_of(times) != (file.event_date,):
        found.append(f"{file.path}: holds records of other dates than {file.event_date}")
    return found


# --- compact -------------------------------------------------------------------------------------


def groups(store: FileStore, files: Sequence[File], file_bytes: int) -> list[MergeGroup]:
    """Returns the groups to merge: the small files of each topic and date.

    Files are taken in the order of partitions and offsets. A group is full where the next file would
    make it larger than `file_bytes`; files of at least half of that size stay as they are. Sizes are
    those of the files as they are stored, and a merged file is about as large as its parts together.
    """
    by_place: dict[tuple[str, str], list[list[File]]] = {}
    for parts in manifests.by_path(files).values():
        one = parts[0]
        if 2 * one.size_bytes < file_bytes:
            by_place.setdefault((one.topic, one.event_date or ""), []).append(parts)
    found: list[list[list[File]]] = []
    for _, members in sorted(by_place.items()):
        found.append([])
        filled = 0
        for parts in members:
            if filled + parts[0].size_bytes > file_bytes:
                found.append([])
                filled = 0
            found[-1].append(parts)
            filled += parts[0].size_bytes
    return [
        MergeGroup(store, tuple(sorted(itertools.chain(*members), key=_by_partition)))
        for members in found
        if len(members) > 1
    ]


def _by_partition(file: File) -> tuple[int, int, str]:
    return file.partition, file.first_offset, file.path


def merge(group: MergeGroup) -> Merged:
    """Writes the file that replaces a group. Raises PipelineError and OSError.

    In memory are the compressed file and one row group of each file of a partition.
    """
    first, replaces = group.files[0], group.paths
    path = layout.merged_path_of(first.topic, first.event_date, replaces)
    writer = writing.ParquetWriter()
    entries = []
    for partition, members in itertools.groupby(group.files, attrgetter("partition")):
        parts = tuple(members)
        counted = sum(one.records for one in parts)
        column_bytes = sum(one.column_bytes for one in parts)
        entry = writer.write(_grouped(group.store, parts, column_bytes // counted), column_bytes)
        if entry.records != counted:
            raise PipelineError(
                f"{path} got {some(entry.records, 'record')} of {counted} of partition {partition}: nothing"
                " is replaced"
            )
        entries.append(entry._replace(topic=first.topic, partition=partition))
    return Merged(writer.publish(group.store, path, first.event_date, entries), replaces)


def _grouped(store: FileStore, parts: tuple[File, ...], each_bytes: int) -> Iterator[Any]:
    """Yields the records of one partition in tables of one row group each."""
    rows = writing.group_rows(each_bytes)
    held: list[Any] = []
    count = 0
    for table in merged(store, parts, layout.SCHEMA.names):
        held.append(table)
        count += table.num_rows
        while count >= rows:
            whole = pa.concat_tables(held)
            yield whole.slice(0, rows)
            held, count = [whole.slice(rows)], count - rows
    if count:
        yield pa.concat_tables(held)
