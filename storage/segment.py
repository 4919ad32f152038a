"""One segment: a `.log` file of whole batches, and what belongs to it.

The `.log` is nothing but batches of any message format, one after another, as they go over the
wire. Of the batches before `tail.size` every one is whole and their offsets grow; `tail` is replaced
as one value after a write, so a reader in another thread sees an end offset and a size that belong
together, and never a batch half written. Beside it: the offset index (may be rebuilt) and the
append times (may not), which are read from disk when first needed and forgotten when the
segment is sealed. A sealed segment holds no descriptor: one is opened for each read.

What a crash leaves: a torn batch at the end of the log, an append time too many, index entries too
few. `recovery` cuts and completes them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import CorruptMessage
from protocol.records.batch import find_offset, find_time, summarize
from storage import filenames, files, timestamps
from storage.append_times import AppendTimes
from storage.headers import (
    HEADER_SIZE,
    batch_size,
    below,
    first_offset_at,
    last_offset_at,
    scan_intact,
    whole_size,
)
from storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from protocol.records.batch import Batch
    from protocol.records.prepare import PreparedBatch

_SLACK = 8 * 1024  # read beyond max_bytes, for the batches between an index entry and the offset
_WINDOW = 256 * 1024  # how much is read at once by a walk over headers
_MAX_HINTS = 32
_REBUILD_INTERVAL_BYTES = 4096  # Kafka's default index.interval.bytes


class Tail(NamedTuple):
    """Where a segment ends: the offset after its last one, and its size in bytes."""

    end_offset: int
    size: int


class Slice(NamedTuple):
    """What a read found in one segment."""

    data: memoryview  # begins with the batch that holds the offset; may end within one
    first_batch_size: int
    next_offset: int | None  # what comes next, where the data ends with the segment


class Found(NamedTuple):
    """A batch met on a walk."""

    position: int  # in the file
    batch: Batch  # its position is the one in `buffer`
    buffer: bytes


class Largest(NamedTuple):
    """The largest record time of the batches before a position; None when there is none."""

    position: int
    timestamp: int | None


class Segment:
    """The batches from `base_offset` on, up to the next segment's."""

    __slots__ = (
        "_append_times",
        "_descriptor",
        "_hints",
        "_index",
        "_is_ragged",
        "_largest",
        "_last_hint",
        "_last_indexed",
        "base_offset",
        "directory",
        "is_active",
        "path",
        "tail",
    )

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        """Describe a segment; no file is touched before it is needed."""
        self.directory = directory
        self.base_offset = base_offset
        self.path = directory / filenames.segment_file(base_offset, filenames.LOG_SUFFIX)
        self.tail = tail
        self.is_active = False
        self._descriptor: files.Descriptor | None = None
        self._index: OffsetIndex | None = None
        self._append_times: AppendTimes | None = None
        self._is_ragged = False  # a failed append may have left bytes behind the tail
        self._last_indexed = 0  # where the last batch with an index entry starts
        self._largest = Largest(0, None)
        # Offset -> position of the batch that holds it, for readers that go on where they stopped.
        self._hints: dict[int, int] = {}
        self._last_hint = (-1, 0)  # the same for the last batch appended

    # --- appending -------------------------------------------------------------------------------

    def activate(self) -> None:
        """Make this the active segment, its file and append times ready; raises OSError.

        Its descriptors are opened with the first append, so an idle partition holds none.
        """
        self.is_active = True
        if not self.tail.size:
            self.path.touch()
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position
        if not self.append_times.load() and self.tail.size:
            self.append_times.mark_unknown()
        self.append_times.truncate(self.tail.end_offset)

    def has_room(self, size: int, last_offset: int, max_bytes: int, max_entries: int) -> bool:
        """Tell whether a batch may still go here; an empty segment takes any."""
        used = self.tail.size
        if not used:
            return True
        return (
            used + size <= max_bytes
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and len(self.index) < max_entries
        )

    def append(
        self,
        buffers: Sequence[files.Buffer],
        size: int,
        batches: Sequence[PreparedBatch],
        append_time_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Write batches behind the last one; all or nothing.

        Raises OSError, and then the log ends where it ended before. When even cutting it back
        fails, that is done before the next append, or by recovery.
        """
        assert self.is_active, "only the active segment takes batches"
        if self._is_ragged:
            self.mend()
        end_offset, position = self.tail
        try:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._descriptor = files.Descriptor(self.path, writable=True)
            self.append_times.append(append_time_ms, end_offset)
            files.write_at(descriptor, buffers, position, size)
        except OSError:
            self._is_ragged = True
            self.cut(self.tail)
            raise
        largest = self._largest
        known = largest.position == position
        timestamp = largest.timestamp
        for batch in batches:
            start = position + batch.position
            if start - self._last_indexed > index_interval_bytes:
                self.index.append(batch.last_offset, start)
                self._last_indexed = start
            if not batch.is_control and timestamps.exceeds(batch.largest, timestamp):
                timestamp = batch.largest
        if known:
            self._largest = Largest(position + size, timestamp)
        self._last_hint = (end_offset, position)
        self.tail = Tail(batches[-1].last_offset + 1, position + size)

    def mend(self) -> None:
        """Cut off what a failed append left behind the tail, if it did; raises OSError."""
        if self._is_ragged:
            self.cut(self.tail)

    def truncate_index(self, position: int) -> None:
        """Keep only the index entries of batches that start before a position."""
        self.index.truncate(position)
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position

    def note_index(self, batch: Batch, position: int, index_interval_bytes: int) -> None:
        """Give the index the entry that appending this batch would have given it."""
        if position - self._last_indexed > index_interval_bytes:
            self.index.append(batch.last_offset, position)
            self._last_indexed = position

    def cut(self, tail: Tail) -> None:
        """Drop everything behind a point where a batch begins; raises OSError.

        Log, index and append times end there together.
        """
        self.tail = tail
        self._hints = {}
        self._last_hint = (-1, 0)
        if self._largest.position > tail.size:
            self._largest = Largest(0, None)
        if self.path.stat().st_size > tail.size:
            os.truncate(self.path, tail.size)
        self.truncate_index(tail.size)
        self.append_times.truncate(tail.end_offset)
        self._is_ragged = False

    def seal(self) -> None:
        """End the active time of the segment: write the index out and let go of everything.

        Raises OSError when the index cannot be written; the segment serves reads all the same.
        """
        try:
            if self._index is not None:
                self._index.flush()
        finally:
            # Readers in other threads keep the descriptor they read from.
            self.is_active = False
            self._descriptor = self._index = self._append_times = None
            self._hints = {}

    def sync(self) -> None:
        """Make what was written durable; raises OSError. Safe beside an append."""
        if self._index is not None:
            self._index.flush()
        files.sync(self.path)
        for suffix in (filenames.APPEND_TIMES_SUFFIX, filenames.OFFSET_INDEX_SUFFIX):
            path = self._path(suffix)
            if path.exists():
                files.sync(path)

    # --- what belongs to the log -----------------------------------------------------------------

    def read_index(self) -> bool:
        """Read the offset index from its file; when that is not usable, False and it is empty."""
        self._index = OffsetIndex(self._path(filenames.OFFSET_INDEX_SUFFIX), self.base_offset)
        return self._index.load(self.tail.size)

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read from its file, or made from the log when that is not usable."""
        if self._index is None and not self.read_index() and self.tail.size:
            return self._rebuild_index()
        assert self._index is not None
        return self._index

    def _rebuild_index(self) -> OffsetIndex:
        """Make the offset index from batch headers. Not for a segment that is appended to."""
        rebuilt = OffsetIndex(self._path(filenames.OFFSET_INDEX_SUFFIX), self.base_offset)
        last_indexed = 0
        for found in self.walk():
            if found.position - last_indexed > _REBUILD_INTERVAL_BYTES:
                rebuilt.append(found.batch.last_offset, found.position)
                last_indexed = found.position
        self._index = rebuilt
        return rebuilt

    @property
    def append_times(self) -> AppendTimes:
        """The append times, read from their file."""
        append_times = self._append_times
        if append_times is None:
            path = self._path(filenames.APPEND_TIMES_SUFFIX)
            append_times = AppendTimes(path, self.base_offset)
            append_times.load()
            self._append_times = append_times
        return append_times

    def _path(self, suffix: str) -> Path:
        return self.directory / filenames.segment_file(self.base_offset, suffix)

    # --- reading ---------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, minimum_one: bool
    ) -> Slice | None:
        """Read from the batch that holds `offset`, or the next one, up to `max_bytes`.

        Only batches that end before `upper_offset`. With `minimum_one` the first batch comes whole
        whatever its size. None when the segment has nothing there. Raises OSError.
        """
        tail = self.tail
        descriptor = self._reader()
        hint = self._last_hint
        position = hint[1] if hint[0] == offset else self._hints.get(offset)
        if position is None or position >= tail.size:
            data, position = self._locate(descriptor, offset, max_bytes, tail)
        else:
            data = files.read_at(descriptor, min(max_bytes, tail.size - position), position)
        if position >= tail.size:
            return None
        head = data
        if len(head) < HEADER_SIZE:
            head = files.read_at(descriptor, min(HEADER_SIZE, tail.size - position), position)
        first_batch_size = batch_size(head) or 0
        if minimum_one and len(data) < first_batch_size:
            data = files.read_at(descriptor, first_batch_size, position)
        view = memoryview(data)[: max(max_bytes, first_batch_size if minimum_one else 0)]
        if upper_offset < tail.end_offset:
            view = below(view, head, upper_offset)
            if not view:
                return None
        self._remember(view, position, tail)
        at_end = position + len(view) == tail.size
        return Slice(view, first_batch_size, tail.end_offset if at_end else None)

    def _reader(self) -> files.Descriptor:
        descriptor = self._descriptor
        return files.Descriptor(self.path) if descriptor is None else descriptor

    def _locate(
        self, descriptor: files.Descriptor, offset: int, max_bytes: int, tail: Tail
    ) -> tuple[bytes | memoryview, int]:
        """Find the first batch that ends at or after `offset`: bytes from there, its position.

        The position is the tail's size where there is none. One read does it as a rule: it begins
        at the index entry and skips the headers before the batch in memory.
        """
        entry = self.index.floor(offset)
        position = 0 if entry is None else entry.position
        size = max_bytes + _SLACK
        while position < tail.size:
            data = files.read_at(descriptor, min(size, tail.size - position), position)
            if entry is not None and last_offset_at(data) != entry.offset:
                # The index lies about this log. The log itself does not.
                entry, position = None, 0
                if self.is_active:
                    self.index.clear()
                else:
                    self._rebuild_index()
                continue
            entry = None
            skipped = find_offset(data, offset)
            position += skipped
            last_offset = last_offset_at(data, skipped)
            if last_offset is not None and last_offset >= offset:
                return memoryview(data)[skipped:], position
            if last_offset is not None:  # a batch before the offset, larger than what was read
                position += batch_size(data, skipped) or 0
            elif not skipped:
                raise CorruptMessage(f"{self.path} ends within a batch at {position}")
        return b"", tail.size

    def _remember(self, view: memoryview, position: int, tail: Tail) -> None:
        """Note where the batch behind those just read starts: its reader comes back for it."""
        whole = whole_size(view)
        offset = first_offset_at(view, whole)
        if offset is None:
            if position + whole != tail.size:
                return
            offset = tail.end_offset
        if len(self._hints) >= _MAX_HINTS:
            self._hints = {}
        self._hints[offset] = position + whole

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[Found]:
        """Go over the batches from a position where one starts, reading their headers.

        Raises CorruptMessage where the log ends within a batch, and OSError.
        """
        if end is None:
            end = self.tail.size
        descriptor = self._reader()
        while position < end:
            buffer = files.read_at(descriptor, min(_WINDOW, end - position), position)
            size = batch_size(buffer)
            if size is None or size > end - position:
                raise CorruptMessage(f"{self.path} has no whole batch at {position}")
            if size > len(buffer):
                buffer = files.read_at(descriptor, size, position)
            read = 0
            for batch in scan_intact(buffer):
                yield Found(position + batch.position, batch, buffer)
                read = batch.position + batch.size
            position += read

    def header_of(self, offset: int) -> Found | None:
        """Return the batch that holds `offset`, None when the segment has none."""
        entry = self.index.floor(offset)
        for found in self.walk(0 if entry is None else entry.position):
            if found.batch.last_offset >= offset:
                return found
        return None

    # --- times -----------------------------------------------------------------------------------

    def largest_time(self) -> int | None:
        """Return the largest record time of the segment, None when no record has one.

        Known for what was appended since the start; the rest is read from batch headers once.
        """
        largest = self._largest
        size = self.tail.size
        if largest.position < size:
            timestamp = largest.timestamp
            for found in self.walk(largest.position, size):
                candidate = self.largest_of(found)
                if timestamps.exceeds(candidate, timestamp):
                    timestamp = candidate
            largest = self._largest = Largest(size, timestamp)
        return largest.timestamp

    def largest_of(self, found: Found) -> int | None:
        """Return the largest record time of one batch, None when no data record of it has one.

        The header of a batch that we wrote says so; of one that we did not write, the records do.
        """
        batch = found.batch
        if batch.is_control:
            return None
        if self.append_times.is_complete:
            return timestamps.or_none(batch.max_timestamp)
        return summarize(found.buffer, batch).largest

    def find_time(
        self, timestamp: int, *, min_offset: int, upper_offset: int
    ) -> tuple[int, int] | None:
        """Return (offset, time) of the first data record at or after a time, in offset order.

        Only records from `min_offset` on and before `upper_offset`; None when there is none.
        """
        for found in self.walk():
            batch = found.batch
            if batch.last_offset < min_offset:
                continue
            if timestamps.reaches(self.largest_of(found), timestamp):
                hit = find_time(found.buffer, batch, timestamp, min_offset)
                if hit is not None:
                    return hit if hit[0] < upper_offset else None
            if batch.last_offset >= upper_offset:
                return None
        return None

    # --- removal ---------------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove every file of the segment but the snapshot; raises OSError."""
        self._descriptor = self._index = self._append_times = None
        for suffix in (
            filenames.OFFSET_INDEX_SUFFIX,
            filenames.TIME_INDEX_SUFFIX,
            filenames.TXN_INDEX_SUFFIX,
            filenames.APPEND_TIMES_SUFFIX,
            filenames.LOG_SUFFIX,
        ):
            self._path(suffix).unlink(missing_ok=True)
