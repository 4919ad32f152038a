"""The files of a segment: the log and what lies beside it, and what they say of its times.

Beside the log are the offset index and the time index (may be rebuilt, both from the same pass) and the
append times (may not), which are read from disk when first needed. An index that cannot be believed is
made anew from the log (`survey`). What is known of times comes from `partition.times` or from
the log, each batch once. A sealed segment that was not used for a while holds no index.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.errors import CorruptMessage
from protocol.records.batch import summarize
from storage import filenames, files
from storage.segment import log_file, survey
from storage.segment.append_times import AppendTimes
from storage.segment.batch_headers import HEADER_SIZE, last_offset_at
from storage.segment.log_file import LogFile
from storage.segment.named_file import NamedFile
from storage.segment.offset_index import OffsetIndex
from storage.segment.sparse_index import flush_both
from storage.segment.time_index import TimeIndex
from storage.time.event_time import EVENT_SLACK_MS
from storage.time.lookup import is_indexed
from storage.time.segment_times import SegmentTimes
from storage.time.timestamp import or_none

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.records.batch import Batch
    from storage.segment.log_file import Found, Tail
    from storage.segment.segment_line import SegmentLine
    from storage.segment.time_index import TimeEntry

_log = logging.getLogger("tidelog.storage")

# In the order of removal: what is left of an interrupted one still is a segment, or nothing.
_SUFFIXES = (
    filenames.OFFSET_INDEX_SUFFIX,
    filenames.TIME_INDEX_SUFFIX,
    filenames.TXN_INDEX_SUFFIX,
    filenames.APPEND_TIMES_SUFFIX,
    filenames.LOG_SUFFIX,
)


class SegmentFiles(LogFile):
    """A segment's log with its two indexes, its append times and what is known of its times."""

    __slots__ = (
        "_append_times",
        "_durable_offset",
        "_files",
        "_index",
        "_known_size",
        "_last_indexed",
        "_least_entries",
        "_time_index",
        "_times",
        "event_slack_ms",
        "is_true",
    )

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        """Describe a segment; no file is touched before it is needed."""
        super().__init__(directory, base_offset, tail)
        self._files = {filenames.LOG_SUFFIX: self.file}  # those beside the log join when needed
        self._index: OffsetIndex | None = None
        self._append_times: AppendTimes | None = None
        self._durable_offset: int | None = None  # before it they were durable; see `adopt`
        self._last_indexed = 0  # where the last batch with an index entry starts
        self._time_index: TimeIndex | None = None
        self._least_entries = (0, 0)  # indexes with fewer than these have been cut short
        self._times = SegmentTimes()  # of the first `_known_size` bytes
        self._known_size = 0
        self.is_true = not tail.size  # headers and indexes say what the records say
        self.event_slack_ms = EVENT_SLACK_MS

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read from its file, or made from the log when that is not usable."""
        index = self._index
        if index is None:
            if not (self.read_index() and self._is_index_true()) and self.tail.size:
                survey.rebuild_indexes(self)
            index = self._index
            assert index is not None
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; where its file is not usable both are made from the log."""
        time_index = self._time_index
        if time_index is None:
            if not (self._read_time_index() and self._is_time_index_true()) and self.tail.size:
                survey.rebuild_indexes(self)
            time_index = self._time_index
            assert time_index is not None
        return time_index

    @property
    def append_times(self) -> AppendTimes:
        """The append times, read from their file."""
        append_times = self._append_times
        if append_times is None:
            file = self.file_of(filenames.APPEND_TIMES_SUFFIX)
            append_times = AppendTimes(file, self.base_offset)
            append_times.load()
            if 0 < self._known_size == self.tail.size and not append_times.confirm(
                self._times.created, self._times.last_append, self._durable_offset
            ):
                self._times.has_unknown = True
            self._append_times = append_times
        return append_times

    def adopt(self, line: SegmentLine, *, is_true: bool, covered_offset: int) -> None:
        """Believe what `partition.times` says of the segment's first bytes.

        Append times before `covered_offset` were durable then. Where it says that of all, and the file
        has less, that was no power loss, and nothing vouches for the rest.
        """
        self._durable_offset = covered_offset if covered_offset < line.end_offset else None
        self._times, self._known_size = line.times.copy(), line.size
        self._least_entries = (line.index_entries, line.time_index_entries)
        self.is_true = is_true

    def adopt_indexes(self, index: OffsetIndex, time_index: TimeIndex) -> None:
        """Take indexes made from the log, and keep them for the next start if the disk lets us."""
        self._index, self._time_index = index, time_index
        self._least_entries = (0, 0)
        try:
            with self.file.lock:  # under these names no other segment may put its own meanwhile
                flush_both(index, time_index)
        except OSError:
            return  # they serve all the same
        if not self.is_active:
            self._least_entries = (len(index), len(time_index))

    def new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Make two empty indexes."""
        return (
            OffsetIndex(self.file_of(filenames.OFFSET_INDEX_SUFFIX), self.base_offset),
            TimeIndex(self.file_of(filenames.TIME_INDEX_SUFFIX), self.base_offset),
        )

    def read_indexes(self) -> bool:
        """Read both indexes; where one is not usable, or has been cut short, both are empty."""
        if self.read_index() and self._read_time_index():
            return True
        self._index, self._time_index = self.new_indexes()
        return False

    def read_index(self) -> bool:
        """Read the offset index from its file; when that is not usable, False and it is empty."""
        index, _ = self.new_indexes()
        good = index.load(self.tail.size) and len(index) >= self._least_entries[0]
        if not good:
            index.clear()
        self._index = index
        return good

    def _read_time_index(self) -> bool:
        _, time_index = self.new_indexes()
        good, count = time_index.load(), len(time_index)
        good = good and count >= self._least_entries[1]
        if not good:
            time_index.clear()
        self._time_index = time_index
        return good

    def _is_index_true(self) -> bool:
        """Tell whether the last entry leads to its batch: half an entry may have become zeros."""
        assert self._index is not None
        last = self._index.last()
        if last is None:
            return True
        head = files.read_at(self._reader(), HEADER_SIZE, last.position)
        return last_offset_at(head) == last.offset

    def _is_time_index_true(self) -> bool:
        """Tell whether the last entry has the time of its batch, as `_is_index_true`."""
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
        """Give the indexes the entries that appending this batch would have given them."""
        if position - self._last_indexed > index_interval_bytes:
            self.index.append(batch.last_offset, position)
            if largest is not None:
                self.time_index.append(*largest)
            self._last_indexed = position

    def truncate_indexes(self, tail: Tail) -> None:
        """Keep only the index entries made before a point where a batch begins."""
        self.index.truncate(tail.size)
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position
        # An entry of the time index was made where the next one of the offset index is, or later.
        self.time_index.truncate(tail.end_offset)

    def complete_indexes(self) -> None:
        """Give the time index its last entry, the largest time, and write both out; raises OSError."""
        if self._index is None or self._time_index is None:
            return
        if self._known_size == self.tail.size:
            self._time_index.append(self._times.largest, self._times.largest_offset)
        flush_both(self._index, self._time_index)
        self._least_entries = (len(self._index), len(self._time_index))

    # --- times ------------------------------------------------------------------------------------

    @property
    def known_times(self) -> tuple[SegmentTimes, int]:
        """What is known of the times without reading the log, and of how many bytes."""
        return self._times, self._known_size

    @known_times.setter
    def known_times(self, known: tuple[SegmentTimes, int]) -> None:
        self._times, self._known_size = known

    @property
    def index_entries(self) -> tuple[int, int]:
        """How many entries the two indexes have at least, in their files or in memory."""
        index, time_index = self._index, self._time_index
        if index is None or time_index is None:
            return self._least_entries
        return len(index), len(time_index)

    @property
    def has_indexes_in_memory(self) -> bool:
        """Whether the indexes can be asked without reading their files first."""
        return self._index is not None and self._time_index is not None

    @property
    def times(self) -> SegmentTimes:
        """The times of the segment's batches; what is not known of them is read, once.

        Raises OSError.
        """
        if self._known_size < self.tail.size:
            survey.catch_up(self)
        return self._times

    def largest_of(self, found: Found) -> int | None:
        """Return the largest record time of one batch, None when no data record of it has one.

        The header of a batch that we wrote says so; of one that we did not write, the records do.
        """
        batch = found.batch
        if batch.is_control or batch.is_empty:
            return None
        if self.is_true:
            return or_none(batch.max_timestamp)
        return summarize(found.buffer, batch).largest

    def header_of(self, offset: int) -> Found | None:
        """Return the batch that holds `offset`, None when the segment has none."""
        entry = self.index.floor(offset)
        for found in self.walk(0 if entry is None else entry.position):
            if found.batch.last_offset >= offset:
                return found
        return None

    # --- the files --------------------------------------------------------------------------------

    def file_of(self, suffix: str) -> NamedFile:
        """Return the log or one of the files beside it, which may not exist."""
        file = self._files.get(suffix)
        if file is None:
            path = self.directory / filenames.segment_file(self.base_offset, suffix)
            file = self._files.setdefault(suffix, NamedFile(path, self.file.lock))
        return file

    def give_up(self) -> None:
        """Never open a file of the segment again: others may take their names."""
        with self.file.lock:
            for suffix in _SUFFIXES:
                self.file_of(suffix).give_up()
        self.rest()

    def rest(self) -> None:
        """Let go of descriptors and, once sealed, of indexes: they are read again when needed.

        Readers in other threads keep what they read from.
        """
        super().rest()
        if not self.is_active:
            self._index = self._time_index = self._append_times = None
        elif self._append_times is not None:
            self._append_times.close()

    def sync(self) -> None:
        """Make what was written durable; raises OSError. Safe beside an append."""
        index, time_index = self._index, self._time_index
        if index is not None and time_index is not None:
            flush_both(index, time_index)
        files.sync(self.path)
        for suffix in (
            filenames.APPEND_TIMES_SUFFIX,
            filenames.OFFSET_INDEX_SUFFIX,
            filenames.TIME_INDEX_SUFFIX,
            filenames.TXN_INDEX_SUFFIX,
        ):
            path = self.file_of(suffix).path
            if path.exists():
                files.sync(path)

    def commit(self) -> None:
        """Make the batches and their append times durable; the indexes can be made anew.

        Of a segment whose files have been made durable before. Safe beside an append. Raises OSError.
        """
        log_file.RECENT.used(self)  # the append times are open for writing
        self.append_times.sync()
        files.sync_data(self._reader())

    def forget_cached(self) -> None:
        """Have the files that cannot be made anew read from the disk from now on; raises OSError."""
        for suffix in (filenames.LOG_SUFFIX, filenames.APPEND_TIMES_SUFFIX):
            files.forget_cached(self.file_of(suffix).path)

    def rename_away(self) -> list[Path]:
        """Give every file of the segment the name of one about to go; return these.

        Reads that have begun go on. Raises OSError, and then nothing has another name. Once the log has,
        the segment is gone: what cannot be renamed of the rest is removed at the next start.
        """
        return [*self.mark_log_deleted(), *self.mark_companions_deleted()]

    def mark_log_deleted(self) -> list[Path]:
        """Begin with the log, or do nothing; raises OSError."""
        try:
            return [self._rename_away(filenames.LOG_SUFFIX)]
        except FileNotFoundError:
            return []

    def mark_companions_deleted(self) -> list[Path]:
        """Go on with the other files, as far as the disk lets us."""
        gone: list[Path] = []
        for suffix in reversed(_SUFFIXES[:-1]):
            try:
                gone.append(self._rename_away(suffix))
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning(
                    "file of a deleted segment left",
                    extra={"file": self.file_of(suffix).path, "reason": str(error)},
                )
        return gone

    def _rename_away(self, suffix: str) -> Path:
        file = self.file_of(suffix)
        file.rename(file.path.with_name(file.path.name + filenames.DELETED_SUFFIX))
        return file.path

    def remove_indexes(self) -> None:
        """Remove the files that can be made anew; raises OSError."""
        for suffix in (filenames.OFFSET_INDEX_SUFFIX, filenames.TIME_INDEX_SUFFIX):
            files.unlink(self.file_of(suffix).path)

    def remove(self) -> None:
        """Remove every file of the segment but the snapshot; raises OSError."""
        self.is_active = False
        self.rest()
        for suffix in _SUFFIXES:
            files.unlink(self.file_of(suffix).path)
