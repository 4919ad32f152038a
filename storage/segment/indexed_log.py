"""A segment's log with its indexes and append times, and what is known of its times.

The offset index and the time index can be rebuilt, the append times cannot. Each is read from disk
when it is first needed. An index that fails its checks is rebuilt from the log (`survey`). Times
come from `partition.times` or from the log, where each batch is read once. A sealed segment that
has not been used for a while holds no index in memory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import summarize
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage import filenames, files
from tidelog.storage.segment import survey
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.batch_headers import HEADER_SIZE, last_offset_at
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment_files import SegmentFiles
from tidelog.storage.segment.segment_line import CountedBefore
from tidelog.storage.segment.sparse_index import flush_both
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.adoption import NOT_ADOPTED
from tidelog.storage.time.event_time import EVENT_SLACK_MS
from tidelog.storage.time.lookup import is_indexed, is_negative
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import earlier, or_none

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.protocol.records.batch import Batch
    from tidelog.storage.segment.log_file import Found, Tail
    from tidelog.storage.segment.segment_line import SegmentLine
    from tidelog.storage.segment.time_index import TimeEntry

_INTERVAL_BYTES = 4096  # Kafka's default index.interval.bytes
_REMEMBER_BYTES = 256 * 1024
_REMEMBERED_TIMES = 8
_NO_TIMES = SegmentTimes(), 0

_NOTHING_COUNTED = CountedBefore(0, None)


class IndexedLog(LogFile):
    """The log of a segment, its indexes and append times; and what is known of its times."""

    __slots__ = (
        "_append_times",
        "_durable_offset",
        "_earlier_times",
        "_index",
        "_known_size",
        "_last_indexed",
        "_least_entries",
        "_remembers_at",
        "_time_index",
        "_times",
        "adoptions",
        "counted_before",
        "event_slack_ms",
        "files",
        "has_true_indexes",
        "index_interval_bytes",
        "is_closed",
        "is_ended",
        "is_true",
    )

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        """Describes a segment; its files are opened when they are first needed."""
        super().__init__(directory, base_offset, tail)
        self.files = SegmentFiles(directory, base_offset, self.file)
        self._index: OffsetIndex | None = None
        self._append_times: AppendTimes | None = None
        self._durable_offset: int | None = None  # append times before it are durable; see `adopt`
        self._last_indexed = 0  # where the last batch with an index entry starts
        self._time_index: TimeIndex | None = None
        self._least_entries = (0, 0)  # an index file with fewer entries has lost some
        self._times = SegmentTimes()  # the times in the first `_known_size` bytes of the log
        self._known_size = 0
        self._earlier_times: tuple[tuple[SegmentTimes, int], ...] = ()  # of both, the oldest first
        self._remembers_at = _REMEMBER_BYTES  # the size at which the next is due
        self.is_true = not tail.size  # headers and indexes agree with the records
        self.has_true_indexes = self.is_true  # perhaps the indexes alone do
        self.is_ended = False  # the next append begins a new segment, whatever the settings say
        self.is_closed = False  # `.appendtimes` ends with its END entry
        self.event_slack_ms = EVENT_SLACK_MS
        self.counted_before = _NOTHING_COUNTED
        self.index_interval_bytes = _INTERVAL_BYTES  # for indexes that are rebuilt
        self.adoptions = NOT_ADOPTED  # stands in for unknown append times

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read from its file, or rebuilt from the log if the file is not usable."""
        index = self._index
        if index is None:
            if not (self.read_index() and self._is_index_true()) and self.tail.size:
                survey.rebuild_indexes(self)
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
        if not (is_good and self._is_time_index_true()) and self.tail.size:
            survey.rebuild_indexes(self)
        time_index = self._time_index
        assert time_index is not None
        return time_index

    @property
    def append_times(self) -> AppendTimes:
        """The append times, read from their file."""
        append_times = self._append_times
        if append_times is None:
            file, times = self.files.of(filenames.APPEND_TIMES_SUFFIX), self._times
            append_times = AppendTimes(file, self.base_offset)
            append_times.load()
            last, is_known = times.last_append, 0 < self._known_size == self.tail.size
            if self.is_closed:
                is_sure = is_known and not times.has_unknown
                append_times.close_at(self.tail.end_offset, last if is_sure else None)
            if is_known and not append_times.confirm(times.created, last, self._durable_offset):
                times.has_unknown = True
            times.has_unknown |= append_times.has_lost
            self._append_times = append_times
        return append_times

    def adopt(self, line: SegmentLine, *, is_true: bool, covered_offset: int) -> None:
        """Takes over what `partition.times` says of the first bytes of the log.

        Append times before `covered_offset` were durable. If that is all of the segment, no power
        loss explains missing ones.
        """
        self._durable_offset = covered_offset if covered_offset < line.end_offset else None
        self._times, self._known_size = line.times.copy(), line.size
        self._least_entries = (line.index_entries, line.time_index_entries)
        self.is_true = self.has_true_indexes = is_true

    @property
    def takes_appends(self) -> bool:
        """Whether a batch may still be appended: then no other thread may replace the indexes."""
        return self.is_active and not self.is_ended

    def adopt_indexes(self, index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Uses indexes rebuilt from the log, and writes them; False if they cannot be written."""
        if is_negative(self._times.first):
            time_index.has_negatives_file = True  # also if it is empty: `_may_have_negatives`
        with self.file.lock:  # under these names no others may be written meanwhile
            self._index, self._time_index = index, time_index
            self._least_entries = (0, 0)
            if self.file.is_gone:
                return False  # a truncation: the names are those of another segment by now
            try:
                flush_both(index, time_index)
            except OSError:
                return False  # they are in memory, which is enough for now
            if not self.is_active:
                self._least_entries = (len(index), len(time_index))
        return True

    def new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Returns two empty indexes."""
        index, times, negatives, _ = map(self.files.of, filenames.INDEX_SUFFIXES)
        base_offset = self.base_offset
        return OffsetIndex(index, base_offset), TimeIndex(times, base_offset, negatives)

    def read_indexes(self) -> bool:
        """Reads both indexes; False, with both empty, if one is not usable or has lost entries."""
        if self.read_index() and self._read_time_index():
            return True
        self._index, self._time_index = self.new_indexes()
        return False

    def read_index(self) -> bool:
        """Reads the offset index; False, with an empty index, if its file is not usable."""
        index, _ = self.new_indexes()
        good = index.load(self.tail.size) and len(index) >= self._least_entries[0]
        if not good:
            index.clear()
        self._index = index
        return good

    def _read_time_index(self) -> bool:
        index, time_index = self.new_indexes()
        good, count = time_index.load(), len(time_index)
        good = good and count >= self._least_entries[1]
        if good and self._may_have_negatives() and index.load(self.tail.size):
            good = not time_index.lacks_negatives(index.first())
        if not good:
            time_index.clear()
        self._time_index = time_index
        return good

    def _may_have_negatives(self) -> bool:
        """Returns whether the largest time may have been negative, by the first time if known."""
        first = self._times.first
        return is_negative(first) or (first is None and self._known_size < self.tail.size)

    def _is_index_true(self) -> bool:
        """Returns whether the last entry points to its batch: a torn write may leave zeros in it."""
        assert self._index is not None
        last = self._index.last()
        if last is None:
            return True
        head = files.read_at(self._reader(), HEADER_SIZE, last.position)
        return last_offset_at(head) == last.offset

    def _is_time_index_true(self) -> bool:
        """Returns whether the last entry has the time of its batch, and is not missing."""
        assert self._time_index is not None
        last = self._time_index.last()
        if not self.is_active and 0 < self._known_size == self.tail.size:
            indexed = None if last is None else last.timestamp
            if is_indexed(self._times.largest, indexed):
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

    def note_index(
        self, batch: Batch, position: int, index_interval_bytes: int, largest: TimeEntry | None
    ) -> None:
        """Adds to the indexes the entries that appending this batch would have added."""
        if position - self._last_indexed > index_interval_bytes:
            self.index.append(batch.last_offset, position)
            if largest is not None:
                self.time_index.append(*largest)
            self._last_indexed = position

    def truncate_indexes(self, tail: Tail) -> None:
        """Drops the index entries of batches after a tail."""
        self.index.truncate(tail.size)
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position
        # A time index entry is added together with the next offset index entry, or later.
        if self._time_index is None:
            self._load_time_index(tail.end_offset)
        else:
            self._time_index.truncate(tail.end_offset)

    def complete_indexes(self) -> None:
        """Adds the largest time as the last entry of the time index and writes both.

        Raises OSError.
        """
        index, time_index = self._index, self._time_index
        if index is None or time_index is None:
            return
        if self._known_size == self.tail.size:
            time_index.append(self._times.largest, self._times.largest_offset)
        self.write_indexes()
        self._least_entries = self.index_entries

    def write_indexes(self) -> None:
        """Writes the indexes in memory, but not older ones than `adopt_indexes`; raises OSError."""
        with self.file.lock if self.is_ended else contextlib.nullcontext():
            index, time_index = self._index, self._time_index
            if index is not None and time_index is not None:
                flush_both(index, time_index)

    # --- times ------------------------------------------------------------------------------------

    @property
    def known_times(self) -> tuple[SegmentTimes, int]:
        """What is known of the times without reading the log, and for how many bytes of it."""
        return self._times, self._known_size

    @known_times.setter
    def known_times(self, known: tuple[SegmentTimes, int]) -> None:
        self._times, self._known_size = known
        self._earlier_times = ()
        self.remember_times()

    def remember_times(self) -> None:
        """Remembers the times so far: after a truncation they are read only from here on."""
        self._remembers_at = self._known_size + _REMEMBER_BYTES
        self._earlier_times = (
            *self._earlier_times[1 - _REMEMBERED_TIMES :],
            (self._times.copy(), self._known_size),
        )

    def forget_times(self, size: int) -> None:
        """Goes back to what was known of the times in at most the first `size` bytes of the log."""
        if self._known_size <= size and size:
            return
        self.counted_before = CountedBefore(min(size, self._known_size), self._times.event)
        created_clock = self._times.created_clock if size else None
        self._earlier_times = tuple(each for each in self._earlier_times if each[1] <= size)
        times, self._known_size = (
            self._earlier_times[-1] if size and self._earlier_times else _NO_TIMES
        )
        self._times = times = times.copy()
        times.created_clock = created_clock
        if times.event is not None:
            times.event = earlier(times.event, self.counted_before.event)
        self._remembers_at = self._known_size + _REMEMBER_BYTES
        self._least_entries = (0, 0)

    def take_times_of(self, other: IndexedLog) -> None:
        """Takes what is known of the times of a longer log that begins with this one."""
        self._times, self._known_size = other._times.copy(), other._known_size
        self._earlier_times = other._earlier_times
        self.forget_times(self.tail.size)

    @property
    def index_entries(self) -> tuple[int, int]:
        """The least number of entries that each index has, in its file or in memory."""
        index, time_index = self._index, self._time_index
        if index is None or time_index is None:
            return self._least_entries
        return len(index), len(time_index)

    @property
    def has_indexes_in_memory(self) -> bool:
        """Whether both indexes are in memory."""
        return self._index is not None and self._time_index is not None

    @property
    def times(self) -> SegmentTimes:
        """The times of all batches of the segment; what is not known is read from the log, once.

        Raises OSError.
        """
        if self._known_size < self.tail.size:
            survey.catch_up(self)
        return self._times

    def learn_times(self) -> None:
        """Reads from the log what is not known of `times`; raises OSError."""
        if self._known_size < self.tail.size:
            survey.catch_up(self)

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
        for found in self.walk(0 if entry is None else entry.position):
            if found.batch.last_offset >= offset:
                return found
        return None

    # --- the files --------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Never opens a file of the segment again: others may take their names."""
        self.files.give_up()
        self.rest()

    def rest(self) -> None:
        """Lets go of descriptors and, once sealed, of indexes: they are read again when needed.

        Readers in other threads keep what they read from.
        """
        super().rest()
        if not self.is_active:
            self._index = self._time_index = self._append_times = None
            self._earlier_times = ()
        elif self._append_times is not None:
            self._append_times.close()

    def sync(self) -> None:
        """Makes what was written durable; raises OSError. Safe beside an append."""
        self.write_indexes()
        self.files.sync()

    def commit(self) -> None:
        """Makes batches and append times durable, beside an append too; raises OSError."""
        files.RECENT.used(self)  # the append times are open for writing
        self.append_times.sync()
        files.sync_data(self._reader())

    def remove(self) -> None:
        """Removes every file of the segment except the snapshot; raises OSError."""
        self.is_active = False
        self.rest()
        self.files.remove()
