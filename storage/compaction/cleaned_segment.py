"""A segment that compaction writes: `.cleaned` files, complete and durable once it is finished.

It has the files that appending its batches would have made: the log, both indexes, the append
times, and the times that `partition.times` keeps. Its `.txnindex` names the aborted transactions
that still have data. The date of its log file is its last append time, for Apache Kafka: there it
stands in for missing times.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.storage import filenames, files
from tidelog.storage.compaction.horizons import NONE, Horizons
from tidelog.storage.segment import transaction_index
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.entries import Cursor
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.event_time import capped
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import or_none

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.protocol.records.kernels.key_map import Filtered
    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.adoption import Adoptions

SUFFIXES = (
    *filenames.INDEX_SUFFIXES,
    filenames.APPEND_TIMES_SUFFIX,
    filenames.LOG_SUFFIX,
)


class Cleaned(NamedTuple):
    """A finished segment: its line in `partition.times`, and the work it took."""

    base_offset: int
    sources: int  # the number of segments it was made from
    end_offset: int  # of the last of them
    size: int
    times: SegmentTimes
    index_entries: int
    time_index_entries: int
    is_true: bool  # the headers' times agree with the records
    bytes_read: int
    horizons: Horizons = NONE  # of what stays in it

    def packed(self) -> dict[str, Any]:
        """Returns the values as JSON can hold them."""
        times = {name: getattr(self.times, name) for name in self.times.__slots__}
        return {**self._asdict(), "times": times}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Cleaned:
        """Returns the value of which `packed` made a JSON object."""
        times = SegmentTimes()
        for name, value in packed["times"].items():
            setattr(times, name, value)
        return cls(**{**packed, "times": times, "horizons": Horizons(*packed["horizons"])})


class Survivor(NamedTuple):
    """A batch that stays, in the bytes to be written, and the times of its records."""

    data: Buffer
    first_offset: int
    last_offset: int
    largest: int | None
    largest_offset: int
    first: int | None
    has_missing: bool
    has_no_data: bool  # a transaction marker, or a batch without records
    is_honest: bool  # the header's times agree with the records

    @classmethod
    def of(cls, data: Buffer, batch: Batch, filtered: Filtered) -> Survivor:
        """Returns a batch that was written anew."""
        is_whole = batch.magic == 2
        last_offset = batch.last_offset if is_whole else filtered.last_offset
        return cls(
            data,
            batch.base_offset if is_whole else filtered.first_offset,
            last_offset,
            filtered.largest,
            last_offset,
            filtered.first,
            filtered.has_missing,
            batch.is_control,
            is_honest=True,
        )

    @classmethod
    def copied(cls, found: Found, filtered: Filtered) -> Survivor:
        """Returns a batch that stays unchanged."""
        batch = found.batch
        data = memoryview(found.buffer)[batch.position : batch.position + batch.size]
        honest = batch.is_control or or_none(batch.max_timestamp) == filtered.largest
        return cls.of(data, batch, filtered)._replace(is_honest=honest)

    @classmethod
    def empty(cls, data: Buffer, batch: Batch) -> Survivor:
        """Returns a batch that stays without its records."""
        return cls(
            data,
            batch.base_offset,
            batch.last_offset,
            None,
            batch.last_offset,
            None,
            has_missing=False,
            has_no_data=True,
            is_honest=True,
        )


class CleanedSegment:
    """A segment while compaction writes it."""

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        index_interval_bytes: int,
        event_slack_ms: int,
        write_bytes: int,
        adoptions: Adoptions,
    ) -> None:
        """Begins with no batches and removes what an interrupted cleaning left; raises OSError."""
        self.directory, self.base_offset = directory, base_offset
        self._interval, self._slack_ms = index_interval_bytes, event_slack_ms
        self._write_bytes, self._adoptions = write_bytes, adoptions
        for suffix in SUFFIXES:
            files.unlink(self._path(suffix))
        self._log = files.Descriptor(self._path(filenames.LOG_SUFFIX), writable=True)
        self._index = OffsetIndex(self._path(filenames.OFFSET_INDEX_SUFFIX), base_offset)
        self._time_index = TimeIndex(
            self._path(filenames.TIME_INDEX_SUFFIX),
            base_offset,
            self._path(filenames.NEGATIVE_TIMES_SUFFIX),
        )
        self._append_times = AppendTimes(self._path(filenames.APPEND_TIMES_SUFFIX), base_offset)
        self._times = SegmentTimes()
        self._size = self._written = self._last_indexed = 0
        self._waiting: list[Buffer] = []
        self._sources = self._end_offset = 0
        self._source_times: Cursor | None = None
        self._is_true = True
        self._bytes_read = 0

    def _path(self, suffix: str) -> Path:
        name = filenames.segment_file(self.base_offset, suffix) + filenames.CLEANED_SUFFIX
        return self.directory / name

    def enter(self, source: Segment) -> None:
        """Continues with the batches of another segment. Raises OSError."""
        self._sources += 1
        self._end_offset = source.tail.end_offset
        self._source_times = Cursor(source.append_times)

    def note_read(self, batch: Batch) -> None:
        """Counts a batch that was read."""
        self._bytes_read += batch.size

    def put(self, survivor: Survivor) -> None:
        """Adds a batch of the segment entered last; raises OSError."""
        assert self._source_times is not None, "no segment was entered"
        append_time_ms = self._source_times.at(survivor.last_offset)
        position, size = self._size, len(survivor.data)
        self._append_times.append(
            UNKNOWN if append_time_ms is None else append_time_ms,
            survivor.first_offset if position else self.base_offset,
        )
        self._note_times(survivor, append_time_ms)
        if position - self._last_indexed > self._interval:
            self._index.append(survivor.last_offset, position)
            self._time_index.append(self._times.largest, self._times.largest_offset)
            self._last_indexed = position
        self._is_true = self._is_true and survivor.is_honest
        self._waiting.append(survivor.data)
        self._size += size
        if self._size - self._written >= self._write_bytes:
            self._write()

    def _note_times(self, survivor: Survivor, append_time_ms: int | None) -> None:
        """Takes the times of a batch into account, as `survey` does for a finished segment."""
        times = self._times
        if append_time_ms is None:
            append_time_ms = self._adoptions.time_of(survivor.last_offset)
            times.note_adopted(append_time_ms)
        else:
            times.note_append(append_time_ms)
        if survivor.has_no_data:
            times.note_control(append_time_ms)
            return
        times.note(
            survivor.first,
            survivor.largest,
            survivor.largest_offset,
            survivor.has_missing,
            append_time_ms,
            capped(append_time_ms, self._slack_ms),
        )

    def _write(self) -> None:
        files.write_at(self._log, self._waiting, self._written, self._size - self._written)
        self._waiting, self._written = [], self._size

    def finish(self, aborted: Sequence[transaction_index.Aborted]) -> Cleaned:
        """Writes the rest, makes all files durable and returns the result; raises OSError."""
        if self._waiting:
            self._write()
        self._time_index.append(self._times.largest, self._times.largest_offset)
        self._index.flush()
        self._time_index.flush()
        self._append_times.finish(self._end_offset)
        if aborted:
            path = self._path(filenames.TXN_INDEX_SUFFIX)
            data = transaction_index.pack(aborted)
            files.write_at(files.Descriptor(path, writable=True), (data,), 0, len(data))
        for suffix in SUFFIXES:
            path = self._path(suffix)
            if path.exists():
                files.sync(path)
        files.sync(self.directory)
        if self._times.last_append is not None:
            date_ns = self._times.last_append * 1_000_000
            with contextlib.suppress(OSError, OverflowError):
                os.utime(self._path(filenames.LOG_SUFFIX), ns=(date_ns, date_ns))
        return Cleaned(
            self.base_offset,
            self._sources,
            self._end_offset,
            self._size,
            self._times,
            len(self._index),
            len(self._time_index),
            self._is_true,
            self._bytes_read,
        )
