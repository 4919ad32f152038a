"""The offset index and the time index of a segment's log.

Both can be rebuilt from the log. Each is read from disk when it is first needed; one that fails its
checks is rebuilt. A sealed segment that has not been used for a while holds none in memory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import summarize
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage import filenames, files
from tidelog.storage.segment.batch_headers import HEADER_SIZE, last_offset_at
from tidelog.storage.segment.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from tidelog.storage.segment.sparse_index import flush_both
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.lookup import is_indexed, is_negative
from tidelog.storage.time.timestamp import exceeds, or_none

if TYPE_CHECKING:
    from tidelog.protocol.records.batch import Batch
    from tidelog.storage.segment.log_file import Found, LogFile, Tail
    from tidelog.storage.segment.log_times import LogTimes
    from tidelog.storage.segment.segment_files import SegmentFiles
    from tidelog.storage.segment.time_index import TimeEntry

_MOST_ENTRY_BYTES = 2 * TimeIndex.entry_size  # of both indexes, for an entry of the offset index
_INTERVAL_BYTES = 4096  # Kafka's default index.interval.bytes


class LogIndexes:
    """Both indexes of one log."""

    __slots__ = (
        "_files",
        "_index",
        "_known",
        "_log",
        "_time_index",
        "are_true",
        "interval_bytes",
        "is_true",
        "last_indexed",
        "least_entries",
    )

    def __init__(self, log: LogFile, files_of_segment: SegmentFiles, known: LogTimes) -> None:
        """Reads nothing."""
        self._log, self._files, self._known = log, files_of_segment, known
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.last_indexed = 0  # where the last batch with an index entry starts
        self.least_entries = (0, 0)  # an index file with fewer entries has lost some
        self.is_true = not log.tail.size  # headers and indexes agree with the records
        self.are_true = self.is_true  # perhaps the indexes alone do
        self.interval_bytes = _INTERVAL_BYTES  # for indexes that are rebuilt

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read from its file, or rebuilt from the log if the file is not usable."""
        index = self._index
        if index is None:
            if not (self.read_index() and self._is_index_true()) and self._log.tail.size:
                self.rebuild()
            index = self._index
            assert index is not None
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; if its file is not usable, both indexes are rebuilt from the log."""
        time_index = self._time_index
        return self._load_time_index() if time_index is None else time_index

    def _load_time_index(self, end_offset: int | None = None) -> TimeIndex:
        """Reads the time index, without the entries from an offset on, or rebuilds it."""
        is_good = self._read_time_index()
        if end_offset is not None and self._time_index is not None:
            self._time_index.truncate(end_offset)
        if not (is_good and self._is_time_index_true()) and self._log.tail.size:
            self.rebuild()
        time_index = self._time_index
        assert time_index is not None
        return time_index

    @property
    def is_index_in_memory(self) -> bool:
        """Whether the offset index is in memory."""
        return self._index is not None

    @property
    def are_in_memory(self) -> bool:
        """Whether both indexes are in memory."""
        return self._index is not None and self._time_index is not None

    @property
    def entries(self) -> tuple[int, int]:
        """The least number of entries that each index has, in its file or in memory."""
        index, time_index = self._index, self._time_index
        if index is None or time_index is None:
            return self.least_entries
        return len(index), len(time_index)

    def has_room(self, size: int, last_offset: int, max_bytes: int, index_bytes: int) -> bool:
        """Returns whether a batch fits into the segment; into an empty one any does.

        `index_bytes` is the size that none of its indexes may exceed.
        """
        used = self._log.tail.size
        if not used:
            return True
        return (
            used + size <= max_bytes
            and last_offset - self._files.base_offset <= MAX_RELATIVE_OFFSET
            and (len(self.index) * _MOST_ENTRY_BYTES < index_bytes or self._have_room(index_bytes))
        )

    def _have_room(self, index_bytes: int) -> bool:
        """Returns whether both indexes have room for one more entry."""
        counts = len(self.index), len(self.time_index)
        limits = index_bytes // OffsetIndex.entry_size, index_bytes // TimeIndex.entry_size
        return all(count < limit for count, limit in zip(counts, limits, strict=True))

    # --- reading ----------------------------------------------------------------------------------

    def new(self) -> tuple[OffsetIndex, TimeIndex]:
        """Returns two empty indexes."""
        index, times, negatives, _ = map(self._files.of, filenames.INDEX_SUFFIXES)
        base_offset = self._files.base_offset
        return OffsetIndex(index, base_offset), TimeIndex(times, base_offset, negatives)

    def read(self) -> bool:
        """Reads both indexes; False, with both empty, if one is not usable or has lost entries."""
        if self.read_index() and self._read_time_index():
            return True
        self._index, self._time_index = self.new()
        return False

    def read_index(self) -> bool:
        """Reads the offset index; False, with an empty index, if its file is not usable."""
        index, _ = self.new()
        good = index.load(self._log.tail.size) and len(index) >= self.least_entries[0]
        if not good:
            index.clear()
        self._index = index
        return good

    def _read_time_index(self) -> bool:
        index, time_index = self.new()
        good, count = time_index.load(), len(time_index)
        good = good and count >= self.least_entries[1]
        if good and self._may_have_negatives() and index.load(self._log.tail.size):
            good = not time_index.lacks_negatives(index.first())
        if not good:
            time_index.clear()
        self._time_index = time_index
        return good

    def _may_have_negatives(self) -> bool:
        """Returns whether the largest time may have been negative, by the first time if known."""
        first = self._known.times.first
        return is_negative(first) or (first is None and self._known.size < self._log.tail.size)

    def _is_index_true(self) -> bool:
        """Returns whether the last entry points to its batch: a torn write may leave zeros in it."""
        assert self._index is not None
        last = self._index.last()
        if last is None:
            return True
        head = files.read_at(self._log.reader(), HEADER_SIZE, last.position)
        return last_offset_at(head) == last.offset

    def _is_time_index_true(self) -> bool:
        """Returns whether the last entry has the time of its batch, and is not missing."""
        assert self._time_index is not None
        last, known = self._time_index.last(), self._known
        if not self._log.is_active and known.is_complete:
            indexed = None if last is None else last.timestamp
            if is_indexed(known.times.largest, indexed):
                return False  # the largest time is the last entry of a sealed segment
        if last is None:
            return True
        try:
            found = self.header_of(last.offset)
        except CorruptMessage:
            return False
        if found is None or found.batch.last_offset != last.offset:
            return False
        return self.largest_of(found) == last.timestamp

    def largest_of(self, found: Found, unpack_limit: int = STORED_LIMIT) -> int | None:
        """Returns the largest record time of a batch, None if no data record of it has one.

        The header says it if this broker wrote the batch; otherwise the records are read. Raises
        UnpackedTooLarge if they have more than `unpack_limit` bytes.
        """
        batch = found.batch
        if batch.is_control or batch.is_empty:
            return None
        if self.is_true:
            return or_none(batch.max_timestamp)
        return summarize(found.buffer, batch, unpack_limit).largest

    def header_of(self, offset: int) -> Found | None:
        """Returns the batch that holds `offset`, None if the segment has none."""
        entry = self.index.floor(offset)
        for found in self._log.walk(0 if entry is None else entry.position):
            if found.batch.last_offset >= offset:
                return found
        return None

    # --- building and writing ---------------------------------------------------------------------

    def rebuild(self) -> None:
        """Rebuilds both indexes from the log; of the active segment only before its first append.

        Raises OSError.
        """
        index, time_index = self.new()
        last_indexed = 0
        largest, largest_offset = None, -1
        for found in self._log.walk():
            batch = found.batch
            candidate = self.largest_of(found)
            if exceeds(candidate, largest):
                largest, largest_offset = candidate, batch.last_offset
            if found.position - last_indexed > self.interval_bytes:
                index.append(batch.last_offset, found.position)
                time_index.append(largest, largest_offset)
                last_indexed = found.position
        time_index.append(largest, largest_offset)
        self.adopt(index, time_index)

    def adopt(self, index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Uses indexes rebuilt from the log, and writes them; False if they cannot be written."""
        if is_negative(self._known.times.first):
            time_index.has_negatives_file = True  # also if it is empty: `_may_have_negatives`
        with self._log.file.lock:  # under these names no others may be written meanwhile
            self._index, self._time_index = index, time_index
            self.least_entries = (0, 0)
            if self._log.file.is_gone:
                return False  # a truncation: the names are those of another segment by now
            try:
                flush_both(index, time_index)
            except OSError:
                return False  # they are in memory, which is enough for now
            if not self._log.is_active:
                self.least_entries = (len(index), len(time_index))
        return True

    def note(
        self, batch: Batch, position: int, interval_bytes: int, largest: TimeEntry | None
    ) -> None:
        """Adds the entries that appending this batch would have added."""
        if position - self.last_indexed > interval_bytes:
            self.index.append(batch.last_offset, position)
            if largest is not None:
                self.time_index.append(*largest)
            self.last_indexed = position

    def continue_at_end(self) -> None:
        """Continues behind the last entry, for appends."""
        last = self.index.last()
        self.last_indexed = 0 if last is None else last.position

    def truncate(self, tail: Tail) -> None:
        """Drops the index entries of batches after a tail."""
        self.index.truncate(tail.size)
        self.continue_at_end()
        # A time index entry is added together with the next offset index entry, or later.
        if self._time_index is None:
            self._load_time_index(tail.end_offset)
        else:
            self._time_index.truncate(tail.end_offset)

    def complete(self) -> None:
        """Adds the largest time as the last entry of the time index and writes both.

        Raises OSError.
        """
        index, time_index = self._index, self._time_index
        if index is None or time_index is None:
            return
        known = self._known
        if known.size == self._log.tail.size:
            time_index.append(known.times.largest, known.times.largest_offset)
        self.write()
        self.least_entries = self.entries

    def write(self) -> None:
        """Writes the indexes in memory, but not older ones than `adopt`; raises OSError."""
        with self._log.file.lock if self._log.is_ended else contextlib.nullcontext():
            index, time_index = self._index, self._time_index
            if index is not None and time_index is not None:
                flush_both(index, time_index)

    def rest(self) -> None:
        """Drops the indexes of a sealed segment from memory: they are read again when needed."""
        if not self._log.is_active:
            self._index = self._time_index = None
