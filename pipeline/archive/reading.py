"""Reads an archive back: the records of one partition in the order of their offsets.

The files of different dates overlap in their offsets, so they are merged. Of a file with several
partitions only the row groups of one are read. Of each open file one row group is in memory (some
megabytes); of a file that another program wrote for an Iceberg table, all row groups whose offsets
overlap. Rows are returned up to the smallest last offset of those row groups whose file has more.
Reading stops with an error at a file that differs from its manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.archive import layout
from tidelog.pipeline.errors import PipelineError
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tidelog.pipeline.archive.iceberg_files import TableFiles
    from tidelog.pipeline.archive.manifests import File
    from tidelog.pipeline.archive.store import FileStore
    from tidelog.protocol.records.columns import ColumnBuffers

_ROWS: Final = 65_536
_NO_BOUND: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """A selection by offset and by event time.

    Offsets are from `low` to before `high`. Of event times the first is included, the last not.
    """

    low: int = 0
    high: int = 2**63 - 1
    low_time: int | None = None
    high_time: int | None = None

    def wants(self, file: File) -> bool:
        """Returns whether a file may contain a selected record."""
        if file.last_offset < self.low or file.first_offset >= self.high:
            return False
        if self.low_time is None and self.high_time is None:
            return True
        first, last = file.min_timestamp_ms, file.max_timestamp_ms
        if first is None or last is None:
            return False
        return (self.low_time is None or last >= self.low_time) and (
            self.high_time is None or first < self.high_time
        )

    def among(self, table: Any) -> Any:
        """Returns the selected rows of a table."""
        offsets = table.column("offset").to_numpy()
        wanted = (offsets >= self.low) & (offsets < self.high)
        if self.low_time is not None or self.high_time is not None:
            times = table.column("timestamp_ms").to_numpy()
            wanted &= times != NO_TIMESTAMP
            if self.low_time is not None:
                wanted &= times >= self.low_time
            if self.high_time is not None:
                wanted &= times < self.high_time
        return table if wanted.all() else table.filter(pa.array(wanted))


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """Some records in the form that the replay engine takes."""

    count: int
    buffers: ColumnBuffers
    offset: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """The records of one partition as a source of the replay engine."""

    store: FileStore | TableFiles
    files: tuple[File, ...]
    bounds: Bounds = Bounds()

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""
        return sum(one.read_bytes for one in self.files)

    def read(self) -> Iterator[ArchivedRows]:
        """Yields the records in order. Raises PipelineError and OSError."""
        for table in merged(self.store, self.files, layout.REPLAYED, self.bounds):
            offsets = np.ascontiguousarray(table.column("offset").to_numpy(), np.int64)
            yield ArchivedRows(len(offsets), layout.buffers_of(table), offsets)


def merged(
    store: FileStore | TableFiles,
    files: Sequence[File],
    columns: Sequence[str],
    bounds: Bounds | None = None,
) -> Iterator[Any]:
    """Yields tables of these columns, with ascending offsets throughout.

    `offset` and `timestamp_ms` must be among the columns. Raises PipelineError for an offset that
    occurs twice.
    """
    bounds = bounds or Bounds()
    waiting = sorted(filter(bounds.wants, files), key=lambda one: (-one.first_offset, one.path))
    active: list[_Cursor] = []
    last = -1
    while waiting or active:
        limit = min((one.bound for one in active), default=_NO_BOUND)
        opened_now, most = 0, max(1, len(active) // 4)
        while waiting and (
            opened_now < most if limit == _NO_BOUND else waiting[-1].first_offset <= limit
        ):
            active.append(_Cursor(store, waiting.pop(), columns))
            limit = min(limit, active[-1].bound)
            opened_now += 1
        if waiting:
            limit = min(limit, waiting[-1].first_offset - 1)
        parts = [one.take(limit) for one in active if one.first <= limit]
        active = [one for one in active if not one.is_over]
        if not parts:
            continue
        taken = pa.concat_tables(parts)
        order = np.argsort(taken.column("offset").to_numpy(), kind="stable")
        taken = taken.take(pa.array(order)).combine_chunks()
        last = _refuse_twice(taken, last, files)
        taken = bounds.among(taken)
        for start in range(0, taken.num_rows, _ROWS):
            yield taken.slice(start, _ROWS)


def _refuse_twice(table: Any, last: int, files: Sequence[File]) -> int:
    offsets = table.column("offset").to_numpy()
    wrong = np.flatnonzero(np.diff(offsets, prepend=last) <= 0)
    if len(wrong):
        name = f"{files[0].topic}-{files[0].partition}"
        raise PipelineError(
            f"{name}: offset {offsets[wrong[0]]} is in the archive twice, or out of order"
        )
    return int(offsets[-1]) if len(offsets) else last


class _Cursor:
    """Reads one file by row groups; the file is open only while a row group is read."""

    def __init__(self, store: FileStore | TableFiles, file: File, columns: Sequence[str]) -> None:
        self._store = store
        self._file = file
        self._columns = list(columns)
        self._groups: list[list[int]] = []  # of this partition, not yet read
        self._is_mixed = False  # row groups have records of other topics and partitions
        self._count = 0  # of a mixed file's records that were read
        self._metadata: Any = None
        self._held: Any = None
        self._last = -1
        self.first = 0  # the first offset in memory
        self.is_over = False
        self._fill()

    @property
    def bound(self) -> int:
        """Returns the last offset up to which all rows are in memory.

        It is unlimited if the whole rest of the file is in memory.
        """
        return self._last if self._groups else _NO_BOUND

    def take(self, limit: int) -> Any:
        """Returns the rows up to an offset."""
        found = self._held
        if self._last <= limit:
            self._fill()
            return found
        offsets = found.column("offset").to_numpy()
        count = int(np.searchsorted(offsets, limit, side="right"))
        self._held, self.first = found.slice(count), int(offsets[count])
        return found.slice(0, count)

    def _fill(self) -> None:
        """Reads the next rows. Raises PipelineError for a file that has changed."""
        if self._metadata is not None and not self._groups:
            self.is_over, self._held = True, None
            return
        try:
            with (
                self._store.open(self._file.path) as source,
                pq.ParquetFile(
                    source, metadata=self._metadata, page_checksum_verification=True
                ) as parquet,
            ):
                if self._metadata is None:
                    self._metadata = parquet.metadata
                    self._begin()
                self._held = self._next_of(parquet)
                if not self._held.num_rows:  # the last row groups were of other partitions
                    self.is_over = True
                    return
                offsets = self._held.column("offset")
                self.first, self._last = offsets[0].as_py(), offsets[-1].as_py()
        except FileNotFoundError as error:
            raise PipelineError(
                f"{self._store.full(self._file.path)} is gone, and a manifest names it: run"
                " `archive verify`"
            ) from error
        except (pa.ArrowException, OSError) as error:
            raise PipelineError(
                f"{self._store.full(self._file.path)} cannot be read: {error}"
            ) from error

    def _begin(self) -> None:
        """Plans which row groups are read together."""
        numbers = groups_of(self._metadata, self._file.partition)
        self._is_mixed = "topic" in self._metadata.schema.names
        if self._is_mixed:
            self._groups = _overlapping(self._metadata, numbers)
            return
        self._groups = [[number] for number in numbers]
        self._check(sum(self._metadata.row_group(number).num_rows for number in numbers))

    def _next_of(self, parquet: Any) -> Any:
        if not self._is_mixed:
            return parquet.read_row_groups(self._groups.pop(0), columns=self._columns)
        rows = None
        while self._groups and not rows:
            rows = _rows_of(parquet, self._groups.pop(0), self._file, self._columns)
            self._count += rows.num_rows
        if not self._groups:
            self._check(self._count)
        return rows

    def _check(self, rows: int) -> None:
        if rows != self._file.records or not rows:
            raise PipelineError(
                f"{self._store.full(self._file.path)} has {some(rows, 'record')} of partition"
                f" {self._file.partition}, and its manifest says {self._file.records}"
            )


def groups_of(metadata: Any, partition: int) -> list[int]:
    """Returns the row groups of a partition in a file, which no other partition shares.

    Files without statistics of the partition are of one partition: archives had no others then.
    """
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(place) for place in range(group.num_columns))
        known = next(one for one in columns if one.path_in_schema == "partition").statistics
        if known is None or not known.has_min_max or known.min <= partition <= known.max:
            found.append(number)
    return found


def _overlapping(metadata: Any, numbers: Sequence[int]) -> list[list[int]]:
    """Returns row groups in the order of their offsets, those together that overlap."""
    spans = sorted((*_offsets_of(metadata.row_group(number)), number) for number in numbers)
    found: list[list[int]] = []
    reached = -1
    for first, last, number in spans:
        if found and first <= reached:
            found[-1].append(number)
        else:
            found.append([number])
        reached = max(reached, last)
    return found


def _offsets_of(group: Any) -> tuple[int, int]:
    columns = (group.column(place) for place in range(group.num_columns))
    known = next(one for one in columns if one.path_in_schema == "offset").statistics
    if known is None or not known.has_min_max:
        return 0, _NO_BOUND
    return known.min, known.max


def _rows_of(parquet: Any, numbers: Sequence[int], file: File, columns: Sequence[str]) -> Any:
    """Returns the rows of a partition in these row groups of a mixed file, in the order of offsets."""
    read = parquet.read_row_groups(
        numbers, columns=list(dict.fromkeys((*columns, "topic", "partition")))
    )
    wanted = pc.and_(
        pc.equal(read.column("topic"), file.topic),
        pc.equal(read.column("partition"), file.partition),
    )
    found = read.filter(wanted).sort_by("offset").select(list(columns))
    return found.cast(pa.schema([layout.SCHEMA.field(name) for name in columns]))
