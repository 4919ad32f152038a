"""Writes splits to Parquet, in one process each; only the names of files return to the driver.

A task has a range of offsets of one partition, and ranges are cut at multiples of a fixed number.
Within a range the task collects records until their uncompressed size reaches `file_bytes`, and
then writes one file for each event date. So the names and the bytes of the files depend only on the
records of the range, not on how the log was cut into splits or how often the task was retried.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.archive import layout
from tidelog.pipeline.archive.manifests import File, Range
from tidelog.pipeline.archive.store import FileStore
from tidelog.pipeline.source.access import read
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.protocol.checksum import crc32c
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog.pipeline.archive.iceberg import DataFileTarget
    from tidelog.pipeline.source.splits import Split

_GROUP_BYTES: Final = 4 << 20  # a row group; restoring holds one per date
GROUP_ROWS: Final = 65_536
_READ_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """The input of one task."""

    store: FileStore | DataFileTarget
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    splits: tuple[Split, ...]
    isolation: str
    file_bytes: int

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read: a split's, by the offsets that are wanted."""
        size = 0
        for one in self.splits:
            low = max(self.start_offset, one.start_offset)
            high = min(self.end_offset, one.end_offset)
            there = max(1, one.end_offset - one.start_offset)
            size += one.size_bytes * max(0, high - low) // there
        return size


class Written(NamedTuple):
    """The result of one task."""

    range: Range
    files: tuple[File, ...]


def chunks(
    store: FileStore | DataFileTarget,
    splits: Sequence[Split],
    *,
    isolation: str,
    offsets: int,
    file_bytes: int,
) -> list[Chunk]:
    """Cuts the splits into tasks, at multiples of `offsets`."""
    found: dict[tuple[str, int, int], list[Split]] = {}
    for split in splits:
        start = split.start_offset
        while start < split.end_offset:
            number = start // offsets
            end = min(split.end_offset, (number + 1) * offsets)
            part = dataclasses.replace(split, start_offset=start, end_offset=end)
            found.setdefault((split.topic, split.partition, number), []).append(part)
            start = end
    return [
        Chunk(
            store,
            topic,
            partition,
            parts[0].start_offset,
            parts[-1].end_offset,
            tuple(parts),
            isolation,
            file_bytes,
        )
        for (topic, partition, _), parts in sorted(found.items())
    ]


def write(chunk: Chunk) -> Written:
    """Does one task. Raises SourceError, ClientError and OSError."""
    store = chunk.store
    assert isinstance(store, FileStore)
    files: list[File] = []
    for table, sizes in sliced(tables(chunk), chunk.file_bytes):
        offsets = table.column("offset")
        files += write_dates(
            store,
            chunk.topic,
            chunk.partition,
            table,
            sizes,
            (offsets[0].as_py(), offsets[-1].as_py()),
        )
    return Written(
        Range(
            chunk.topic,
            chunk.partition,
            chunk.start_offset,
            chunk.end_offset,
            sum(one.records for one in files),
        ),
        tuple(files),
    )


def write_dates(
    store: FileStore, topic: str, partition: int, table: Any, sizes: Any, span: tuple[int, int]
) -> Iterator[File]:
    """Writes the records of one partition, one file for each date; `span` is a part of each file's name."""
    sized = table.append_column("size", pa.array(sizes))
    for date, part in layout.by_date(sized):
        column_bytes = int(np.sum(part.column("size").to_numpy()))
        path = layout.path_of(topic, partition, date, *span)
        yield write_file(store, path, topic, partition, date, part.drop(["size"]), column_bytes)


def write_file(
    store: FileStore,
    path: str,
    topic: str,
    partition: int,
    date: str | None,
    table: Any,
    column_bytes: int,
) -> File:
    """Writes one file, with the same bytes each time; returns its entry for the manifest."""
    writer = ParquetWriter()
    rows = group_rows(column_bytes // max(1, table.num_rows))
    tables = (table.slice(start, rows) for start in range(0, table.num_rows, rows))
    entry = writer.write(tables, column_bytes)._replace(topic=topic, partition=partition)
    return writer.publish(store, path, date, [entry])[0]


def group_rows(each_bytes: int) -> int:
    """Returns the number of rows of a row group, for records of this size in bytes."""
    return max(1, min(GROUP_ROWS, _GROUP_BYTES // max(1, each_bytes)))


class ParquetWriter:
    """Writes a Parquet file, partition by partition; the compressed file is in memory."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._parquet = pq.ParquetWriter(
            self._sink,
            layout.SCHEMA,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=["key", "partition", "timestampType", "headers.list.element.key"],
            write_statistics=["partition", "offset", "timestamp", "timestamp_ms", "append_time_ms"],
        )

    def write(self, tables: Iterable[Any], column_bytes: int) -> File:
        """Writes the records of one partition, a row group for each table.

        Returns an entry that still lacks the file and the partition.
        """
        first, last, count = -1, -1, 0
        times: list[int] = []
        for table in tables:
            self._parquet.write_table(table.combine_chunks(), row_group_size=table.num_rows)
            offsets = table.column("offset")
            first = offsets[0].as_py() if first < 0 else first
            last, count = offsets[-1].as_py(), count + table.num_rows
            present = table.column("timestamp_ms").to_numpy()
            present = present[present != NO_TIMESTAMP]
            times += [int(present.min()), int(present.max())] if len(present) else []
        return File(
            path="",
            topic="",
            partition=-1,
            event_date=None,
            first_offset=first,
            last_offset=last,
            records=count,
            size_bytes=0,
            column_bytes=column_bytes,
            crc32c=0,
            min_timestamp_ms=min(times, default=None),
            max_timestamp_ms=max(times, default=None),
        )

    def publish(
        self, store: FileStore, path: str, date: str | None, entries: Sequence[File]
    ) -> tuple[File, ...]:
        """Ends the file and publishes it in the store; returns the completed entries. Raises OSError."""
        self._parquet.close()
        data = self._sink.getvalue()
        store.publish(path, data)
        crc, size = crc32c(data), len(data)
        return tuple(
            one._replace(path=path, event_date=date, size_bytes=size, crc32c=crc) for one in entries
        )


def tables(chunk: Chunk) -> Iterator[tuple[Any, Any]]:
    """Yields the records of a task as tables, each with the sizes of its records."""
    options = ReadOptions(isolation=chunk.isolation, batch_bytes=_READ_BYTES)
    for split in chunk.splits:
        for columns in read(split, options):
            if len(columns):
                yield layout.table_of(columns)


def sliced(tables: Iterator[tuple[Any, Any]], limit: int) -> Iterator[tuple[Any, Any]]:
    """Cuts records into tables of at most `limit` bytes, or of one record that is larger."""
    held: list[tuple[Any, Any]] = []
    filled = 0
    for whole, all_sizes in tables:
        table, sizes = whole, all_sizes
        while len(sizes):
            ends = np.cumsum(sizes)
            count = int(np.searchsorted(ends, limit - filled, side="right"))
            if not count and not held:
                count = 1
            if count:
                held.append((table.slice(0, count), sizes[:count]))
                filled += int(ends[count - 1])
            if count < len(sizes):
                yield _joined(held)
                held, filled = [], 0
            table, sizes = table.slice(count), sizes[count:]
    if held:
        yield _joined(held)


def _joined(held: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    return (
        pa.concat_tables([table for table, _ in held]),
        np.concatenate([sizes for _, sizes in held]),
    )
