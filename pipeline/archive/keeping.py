"""Maintains an archive: `check` compares files with manifests, `merge` combines small files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from pipeline.archive import layout, writing
from pipeline.archive.reading import merged
from pipeline.errors import PipelineError
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.archive.manifests import File
    from pipeline.archive.store import Store
    from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Partition:
    """The files of one partition that `check` reads."""

    store: Store
    files: tuple[File, ...]


class Group(NamedTuple):
    """Files of one partition and date that `merge` combines into one."""

    store: Store
    files: tuple[File, ...]
    file_bytes: int


class Merged(NamedTuple):
    """A new file, and the files that it replaces."""

    file: File
    replaces: tuple[str, ...]


# --- verify --------------------------------------------------------------------------------------


def check(partition: Partition) -> list[str]:
    """Returns sentences that say what is wrong with the files of a partition. Raises OSError."""
    found: list[str] = []
    for file in partition.files:
        found += _check_file(partition.store, file)
    if not found:
        try:
            for _ in merged(partition.store, partition.files, ("offset", "timestamp_ms")):
                pass
        except PipelineError as error:
            found.append(str(error))
    return found


def _check_file(store: Store, file: File) -> list[str]:
    data = store.read(file.path)
    if data is None:
        return [f"{file.path}: missing ({file.records} records)"]
    if len(data) != file.size_bytes or crc32c(data) != file.crc32c:
        expected = f"{file.size_bytes} with {file.crc32c:08x}"
        return [
            f"{file.path}: changed: {len(data)} bytes with CRC {crc32c(data):08x}, written were {expected}"
        ]
    table = pq.read_table(pa.BufferReader(data), columns=["partition", "offset", "timestamp_ms"])
    offsets = table.column("offset").to_numpy()
    times = table.column("timestamp_ms").to_numpy()
    present = times[times != NO_TIMESTAMP]
    seen = (
        len(offsets),
        int(offsets[0]),
        int(offsets[-1]),
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
        found.append(f"{file.path}: holds {seen}, and its manifest says {named}")
    if layout.dates_of(times) != (file.event_date,):
        found.append(f"{file.path}: holds records of other dates than {file.event_date}")
    if set(table.column("partition").to_pylist()) != {file.partition}:
        found.append(f"{file.path}: holds records of other partitions than {file.partition}")
    return found


# --- compact -------------------------------------------------------------------------------------


def groups(store: Store, files: Sequence[File], file_bytes: int) -> list[Group]:
    """Returns the groups to merge: neighbouring small files of one partition and date."""
    by_place: dict[tuple[TopicPartition, str], list[File]] = {}
    for one in files:
        by_place.setdefault((one.key, one.event_date or ""), []).append(one)
    found: list[Group] = []
    for _, members in sorted(by_place.items()):
        group: list[File] = []
        for one in sorted(members, key=lambda one: one.first_offset):
            if group and sum(each.column_bytes for each in group) + one.column_bytes > file_bytes:
                found.append(Group(store, tuple(group), file_bytes))
                group = []
            group.append(one)
        found.append(Group(store, tuple(group), file_bytes))
    return [one for one in found if len(one.files) > 1]


def merge(group: Group) -> Merged:
    """Writes the file that replaces a group. Raises PipelineError and OSError."""
    first = group.files[0]
    table = pa.concat_tables(_whole_tables(group))
    path = layout.path_of(
        first.topic,
        first.partition,
        first.event_date,
        group.files[0].first_offset,
        group.files[-1].last_offset,
    )
    replaces = tuple(one.path for one in group.files)
    if path in replaces:
        raise PipelineError(f"{path} would replace itself: run `archive verify`")
    file = writing.write_file(
        group.store,
        path,
        first.topic,
        first.partition,
        first.event_date,
        table,
        sum(one.column_bytes for one in group.files),
    )
    counted = sum(one.records for one in group.files)
    if file.records != counted:
        raise PipelineError(f"{path} got {file.records} records of {counted}: nothing is replaced")
    return Merged(file, replaces)


def _whole_tables(group: Group) -> Iterator[Any]:
    yield from merged(group.store, group.files, layout.SCHEMA.names)
