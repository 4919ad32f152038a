"""Reads the data files of an archive that is an Iceberg table: `survey` is the task that examines one.

A table lists its files, but not what each has of every topic and partition. Other programs may also
rewrite its files (`rewrite_data_files`), so that a file has records of several topics and partitions in
any order. So `survey` reads topic, partition, offset and times of every record of a file, and returns
the entries that the manifest of a directory would have.

The name of a file that `archive` wrote ends with the CRC-32C of its bytes. A file that another program
wrote has none: its size and the checksums of its pages are compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.archive.manifests import File
from tidelog.pipeline.times import date_of
from tidelog.protocol.checksum import crc32c
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_MS: Final = 86_400_000
_FIRST_MS: Final = (
    -62_135_596_800_000
)  # the years 1 to 9999: pyiceberg names days by dates of Python
_LAST_MS: Final = 253_402_300_799_999
_CRC: Final = re.compile(r"-crc([0-9a-f]{8})\.parquet$")
_KEYS: Final = ("topic", "partition", "offset", "timestamp_ms")
_SURVEYED: Final = (*_KEYS, "timestamp")
_LARGE: Final = ("key", "value", "headers")
_ROW_BYTES: Final = 64  # of the other columns, as in a directory


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table, by their locations. It can be pickled."""

    location: str  # the table, as sentences name it
    properties: tuple[tuple[str, str], ...]

    def full(self, name: str) -> str:
        """Returns the location of a file."""
        return name

    def open(self, name: str) -> Any:
        """Returns a file as pyarrow reads it. Raises FileNotFoundError and OSError."""
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.properties), name).new_input(name).open()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file as the table lists it."""

    files: TableFiles
    path: str
    size_bytes: int
    records: int
    day: int | None  # since 1970
    deletes: int  # files of deletes that apply to it
    is_whole: bool  # every byte is to be checked, not only the columns that are needed


class Surveyed(NamedTuple):
    """What one file has of each partition, and sentences that say what is wrong with it."""

    entries: tuple[File, ...]
    findings: tuple[str, ...]


def name_of(topic: str, partition: int, first: int, last: int, unique: str, crc: int) -> str:
    """Returns the name of a new data file."""
    return f"{topic}-p{partition:05d}-{first}-{last}-{unique}-crc{crc:08x}.parquet"


def dated(times: Any) -> Any:
    """Returns for each time of records whether the column `timestamp` has it: in the years 1 to 9999."""
    has_day = pc.and_(pc.greater_equal(times, _FIRST_MS), pc.less_equal(times, _LAST_MS))
    return pc.and_(has_day, pc.not_equal(times, NO_TIMESTAMP))


def survey(item: DataFile) -> Surveyed:
    """Examines a file. Raises OSError where it cannot be reached."""
    if item.deletes:
        deletes = some(item.deletes, "file")
        return Surveyed(
            (), (f"{item.path}: {deletes} of deletes: records were deleted from the table",)
        )
    try:
        with item.files.open(item.path) as source:
            if not item.is_whole:
                return _examined(item, source, _SURVEYED)
            data: bytes = source.read()
    except FileNotFoundError:
        return Surveyed((), (f"{item.path}: missing ({some(item.records, 'record')})",))
    except (pa.ArrowException, KeyError) as error:
        return _unreadable(item, error)
    except OSError as error:  # Arrow says neither which file it is, nor whether that was damaged
        raise OSError(f"{item.path} cannot be read: {_said(error)}") from error
    return _checked(item, data)


def _checked(item: DataFile, data: bytes) -> Surveyed:
    """Compares the bytes of a file with those that were written, and examines it."""
    named = _CRC.search(item.path)
    crc = None if named is None else int(named[1], 16)
    if len(data) != item.size_bytes or crc not in {None, crc32c(data)}:
        expected = f"{item.size_bytes}" + ("" if crc is None else f" with {crc:08x}")
        there = f"{some(len(data), 'byte')} with CRC {crc32c(data):08x}"
        return Surveyed((), (f"{item.path}: changed: {there}, written were {expected}",))
    columns = None if crc is None else _SURVEYED  # all: its pages have the only checksums
    try:
        return _examined(item, pa.BufferReader(data), columns)
    except (pa.ArrowException, OSError, KeyError) as error:
        return _unreadable(item, error)


def _unreadable(item: DataFile, error: Exception) -> Surveyed:
    return Surveyed((), (f"{item.path}: cannot be read: {_said(error)}",))


def _said(error: Exception) -> str:
    """Returns the message of Arrow as one line."""
    return " ".join(str(error).split())


def _examined(item: DataFile, source: Any, columns: tuple[str, ...] | None) -> Surveyed:
    with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
        read = (
            parquet.read_row_group(number, columns=columns).select(_SURVEYED)
            for number in range(parquet.num_row_groups)
        )
        table = pa.concat_tables([parquet.schema_arrow.empty_table().select(_SURVEYED), *read])
        findings = tuple(_contradictions(item, table))
        nulls = [name for name in _KEYS if table.column(name).null_count]
        if nulls:
            findings += (f"{item.path}: has records without {', '.join(nulls)}",)
            return Surveyed((), findings)
        return Surveyed(tuple(_entries(item, parquet.metadata, table)), findings)


def _contradictions(item: DataFile, table: Any) -> Iterator[str]:
    if table.num_rows != item.records:
        yield (
            f"{item.path}: has {some(table.num_rows, 'record')}, and the table says {item.records}"
        )
    times = table.column("timestamp_ms")
    micros = pc.if_else(dated(times), pc.multiply(times, 1000), None)
    shown = table.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    if not shown.equals(micros.cast(pa.int64())):
        yield f"{item.path}: has records whose timestamp is not their timestamp_ms"
        return
    for day in pc.unique(pc.if_else(dated(times), times, None)).to_pylist():
        if (None if day is None else day // DAY_MS) != item.day:
            date = None if item.day is None else date_of(item.day * DAY_MS)
            yield f"{item.path}: holds records of other dates than {date}"
            return


def _entries(item: DataFile, metadata: Any, table: Any) -> Iterator[File]:
    """Yields the entry of each partition."""
    times = table.column("timestamp_ms")
    present = pc.if_else(pc.equal(times, NO_TIMESTAMP), None, times)
    grouped = (
        table.select(("topic", "partition", "offset"))
        .append_column("time", present)
        .group_by(["topic", "partition"])
        .aggregate(
            [(name, how) for name in ("offset", "time") for how in ("min", "max")]
            + [([], "count_all")]
        )
    )
    each_bytes = _ROW_BYTES + _large_bytes(metadata) // max(1, table.num_rows)
    for row in grouped.to_pylist():
        yield File(
            path=item.path,
            topic=row["topic"],
            partition=row["partition"],
            event_date=None if item.day is None else date_of(item.day * DAY_MS),
            first_offset=row["offset_min"],
            last_offset=row["offset_max"],
            records=row["count_all"],
            size_bytes=item.size_bytes,
            column_bytes=each_bytes * row["count_all"],
            crc32c=0,  # in the name, where it is known
            min_timestamp_ms=row["time_min"],
            max_timestamp_ms=row["time_max"],
        )


def _large_bytes(metadata: Any) -> int:
    """Returns about how many bytes the keys, values and headers of a file have, unpacked."""
    size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.partition(".")[0] in _LARGE:
                size += column.total_uncompressed_size
    return size
