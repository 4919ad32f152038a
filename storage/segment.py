"""One segment: a `.log` file of whole batches, and what belongs to it.

The `.log` is nothing but batches of any message format, one after another, as they go over the
wire. Of the batches before `tail.size` every one is whole and their offsets grow; `tail` is replaced
as one value after a write, so a reader in another thread sees an end offset and a size that belong
together, and never a batch half written. Beside it: the offset index and the time index (may be
rebuilt, both from the same pass) and the append times (may not), which are read from disk when
first needed. What was not used for a while holds no descriptor, and no index once it is sealed.

What a crash leaves: a torn batch at the end of the log, an append time too many, index entries too
few. `recovery` cuts and completes them. A segment that somebody else wrote is searched by its
records alone; once sealed they are read once, and then indexes and headers serve if they are true.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import CorruptMessage
from protocol.records.batch import find_offset, find_time, summarize
from storage import filenames, files, survey, timestamps
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
from storage.sparse_index import flush_both
from storage.time_index import TimeEntry, TimeIndex
from storage.timestamps import SegmentTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from protocol.records.batch import Batch
    from protocol.records.prepare import PreparedBatch
    from storage.partition_times import SegmentLine

_log = logging.getLogger("tidelog.storage")

_SLACK = 8 * 1024  # read beyond max_bytes, for the batches between an index entry and the offset
_FIRST_WINDOW = 8 * 1024  # how much a walk over headers reads at first, for it may be a short one
_WINDOW = 256 * 1024  # and at most
_MAX_HINTS = 32
_SHORT_LOG_BYTES = 4 << 20  # a log whose indexes are quickly made anew

# In the order of removal: what is left of an interrupted one still is a segment, or nothing.
_SUFFIXES = (
    filenames.OFFSET_INDEX_SUFFIX,
    filenames.TIME_INDEX_SUFFIX,
    filenames.TXN_INDEX_SUFFIX,
    filenames.APPEND_TIMES_SUFFIX,
    filenames.LOG_SUFFIX,
)

RECENT = files.Recent(384)  # segments that may hold a descriptor or two


class NotAtHandError(Exception):
    """What was asked for is there, but so much has to be read first that a thread should do it."""


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


class Segment:
    """The batches from `base_offset` on, up to the next segment's."""

    __slots__ = (
        "__weakref__",
        "_append_times",
        "_descriptor",
        "_durable_offset",
        "_hints",
        "_index",
        "_is_ragged",
        "_known_size",
        "_last_hint",
        "_last_indexed",
        "_least_entries",
        "_time_index",
        "_times",
        "base_offset",
        "directory",
        "event_slack_ms",
        "is_active",
        "is_true",
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
        self._durable_offset: int | None = None  # before it they were durable; see `adopt`
        self._is_ragged = False  # a failed append may have left bytes behind the tail
        self._last_indexed = 0  # where the last batch with an index entry starts
        self._time_index: TimeIndex | None = None
        self._least_entries = (0, 0)  # indexes with fewer than these have been cut short
        self._times = SegmentTimes()  # of the first `_known_size` bytes
        self._known_size = 0
        self.is_true = not tail.size  # headers and indexes say what the records say
        self.event_slack_ms = timestamps.EVENT_SLACK_MS
        # Offset -> position of the batch that holds it, for readers that go on where they stopped.
        self._hints: dict[int, int] = {}
        self._last_hint = (-1, 0)  # the same for the last batch appended

    # --- appending -------------------------------------------------------------------------------

    def activate(self) -> None:
        """Make this the active segment, its file and append times ready; raises OSError.

        Its descriptors are opened with the first append, so an idle partition holds none.
        """
        self.is_active = True
        self._descriptor = None  # it may be one for reading alone
        if not self.tail.size:
            files.make(self.path)
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position
        assert self.time_index is not None
        if not self.append_times.load() and self.tail.size:
            self.append_times.mark_unknown()
            self._times.has_unknown = True
        self.append_times.truncate(self.tail.end_offset)
        self.append_times.close()

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
        event_limit: int,
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
        if self._known_size < position:
            survey.catch_up(self)
        try:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._descriptor = files.Descriptor(self.path, writable=True)
                RECENT.used(self)
            self.append_times.append(append_time_ms, end_offset)
            files.write_at(descriptor, buffers, position, size)
        except OSError:
            self._is_ragged = True
            self.cut(self.tail)
            raise
        times = self._times
        for batch in batches:
            if batch.is_control:
                times.note_control(append_time_ms)
            else:
                times.note(
                    batch.first,
                    batch.largest,
                    batch.largest_offset,
                    batch.has_missing,
                    append_time_ms,
                    event_limit,
                )
            start = position + batch.position
            if start - self._last_indexed > index_interval_bytes:
                self.index.append(batch.last_offset, start)
                self.time_index.append(times.largest, times.largest_offset)
                self._last_indexed = start
        times.note_append(append_time_ms)
        self._known_size = position + size
        self._last_hint = (end_offset, position)
        self.tail = Tail(batches[-1].last_offset + 1, position + size)

    def mend(self) -> None:
        """Cut off what a failed append left behind the tail, if it did; raises OSError."""
        if self._is_ragged:
            self.cut(self.tail)

    def truncate_indexes(self, tail: Tail) -> None:
        """Keep only the index entries made before a point where a batch begins."""
        self.index.truncate(tail.size)
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position
        # An entry of the time index was made where the next one of the offset index is, or later.
        self.time_index.truncate(tail.end_offset)

    def note_index(
        self, batch: Batch, position: int, index_interval_bytes: int, largest: TimeEntry | None
    ) -> None:
        """Give the indexes the entries that appending this batch would have given them."""
        if position - self._last_indexed > index_interval_bytes:
            self.index.append(batch.last_offset, position)
            if largest is not None:
                self.time_index.append(*largest)
            self._last_indexed = position

    def cut(self, tail: Tail) -> None:
        """Drop everything behind a point where a batch begins; raises OSError.

        Log, index and append times end there together.
        """
        self.tail = tail
        self._hints = {}
        self._last_hint = (-1, 0)
        if self._known_size > tail.size:
            self._times, self._known_size = SegmentTimes(), 0
            self._least_entries = (0, 0)
        if self.path.stat().st_size > tail.size:
            files.truncate(self.path, tail.size)
        self.truncate_indexes(tail)
        self.append_times.truncate(tail.end_offset)
        self._is_ragged = False

    def complete_indexes(self) -> None:
        """Give the time index its last entry, the largest time, and write both out; raises OSError."""
        if self._index is None or self._time_index is None:
            return
        if self._known_size == self.tail.size:
            self._time_index.append(self._times.largest, self._times.largest_offset)
        flush_both(self._index, self._time_index)
        self._least_entries = (len(self._index), len(self._time_index))

    def seal(self) -> None:
        """End the active time of the segment: write the indexes out and let go of everything.

        Raises OSError when they cannot be written; the segment serves reads all the same.
        """
        try:
            self.complete_indexes()
        finally:
            self.is_active = False
            self.rest()

    def rest(self) -> None:
        """Let go of descriptors and, once sealed, of indexes: they are read again when needed.

        Readers in other threads keep what they read from.
        """
        self._descriptor = None
        if not self.is_active:
            self._index = self._time_index = self._append_times = None
            self._hints = {}
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
        ):
            path = self._path(suffix)
            if path.exists():
                files.sync(path)

    def commit(self) -> None:
        """Make the batches and their append times durable; the indexes can be made anew.

        Of a segment whose files have been made durable before. Safe beside an append. Raises OSError.
        """
        RECENT.used(self)  # the append times are open for writing
        self.append_times.sync()
        files.sync_data(self._reader())

    def forget_cached(self) -> None:
        """Have the files that cannot be made anew read from the disk from now on; raises OSError."""
        for path in (self.path, self._path(filenames.APPEND_TIMES_SUFFIX)):
            files.forget_cached(path)

    # --- what belongs to the log -----------------------------------------------------------------

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
            flush_both(index, time_index)
        except OSError:
            return  # they serve all the same
        if not self.is_active:
            self._least_entries = (len(index), len(time_index))

    def new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Make two empty indexes."""
        return (
            OffsetIndex(self._path(filenames.OFFSET_INDEX_SUFFIX), self.base_offset),
            TimeIndex(self._path(filenames.TIME_INDEX_SUFFIX), self.base_offset),
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
            if timestamps.is_indexed(self._times.largest, indexed):
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
            path = self._path(filenames.APPEND_TIMES_SUFFIX)
            append_times = AppendTimes(path, self.base_offset)
            append_times.load()
            if 0 < self._known_size == self.tail.size and not append_times.confirm(
                self._times.created, self._times.last_append, self._durable_offset
            ):
                self._times.has_unknown = True
            self._append_times = append_times
        return append_times

    def _path(self, suffix: str) -> Path:
        return self.directory / filenames.segment_file(self.base_offset, suffix)

    # --- reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        minimum_one: bool,
        at_hand: bool = False,
    ) -> Slice | None:
        """Read from the batch that holds `offset`, or the next one, up to `max_bytes`.

        Only batches that end before `upper_offset`. With `minimum_one` the first batch comes whole
        whatever its size. None when the segment has nothing there. Raises OSError; with `at_hand`
        NotAtHandError where a long segment's index would have to be read, or made, first.
        """
        tail = self.tail
        descriptor = self._reader()
        hint = self._last_hint
        position = hint[1] if hint[0] == offset else self._hints.get(offset)
        if position is None and offset <= self.base_offset:
            position = 0
        if position is None or position >= tail.size:
            if at_hand and self._index is None and tail.size > _SHORT_LOG_BYTES:
                raise NotAtHandError(f"{self.path}: the index is not in memory")
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
        if descriptor is not None:
            if not self.is_active:
                RECENT.used(self)
            return descriptor
        path = self.path
        try:
            descriptor = files.Descriptor(path)
        except FileNotFoundError:
            if self.path == path:
                raise
            descriptor = files.Descriptor(self.path)  # retention has just renamed it
        if not self.is_active:
            self._descriptor = descriptor
            RECENT.used(self)
        return descriptor

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
                    survey.rebuild_indexes(self)
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

    def position_of(self, offset: int) -> int:
        """Return where the batch that holds an offset, or the next one, begins in the log.

        Where the log ends if there is none. Raises OSError.
        """
        return self._locate(self._reader(), offset, 0, self.tail)[1]

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
        window = _FIRST_WINDOW
        while position < end:
            buffer = files.read_at(descriptor, min(window, end - position), position)
            window = min(2 * window, _WINDOW)
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

    def largest_time(self) -> int | None:
        """Return the largest record time, None when no record has one; raises OSError."""
        return self.times.largest

    def largest_of(self, found: Found) -> int | None:
        """Return the largest record time of one batch, None when no data record of it has one.

        The header of a batch that we wrote says so; of one that we did not write, the records do.
        """
        batch = found.batch
        if batch.is_control or batch.is_empty:
            return None
        if self.is_true:
            return timestamps.or_none(batch.max_timestamp)
        return summarize(found.buffer, batch).largest

    def find_time(
        self, timestamp: int, *, min_offset: int, upper_offset: int
    ) -> tuple[int, int] | None:
        """Return (offset, time) of the first data record at or after a time, in offset order.

        Only records from `min_offset` on and before `upper_offset`; None when there is none.
        """
        for found in self.walk(self._search_from(timestamp, min_offset)):
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

    def _search_from(self, timestamp: int, min_offset: int) -> int:
        """Return a position of a batch before which no record is the one looked for."""
        if not self.is_true and not self.is_active:
            survey.verify(self)
        entry = self.index.floor(min_offset)
        position = 0 if entry is None else entry.position
        if not self.is_true or not timestamps.is_searchable(timestamp):
            return position
        reached = self.time_index.first_reaching(timestamp)
        reached_offset = self.times.largest_offset if reached is None else reached.offset
        before = self.index.floor(reached_offset - 1)
        return position if before is None else max(position, before.position)

    # --- removal ---------------------------------------------------------------------------------

    def rename_away(self) -> list[Path]:
        """Give every file of the segment the name of one about to go; return these.

        Reads that have begun go on. Raises OSError, and then nothing has another name. Once the log has,
        the segment is gone: what cannot be renamed of the rest is removed at the next start.
        """
        return [*self.rename_log_away(), *self.rename_rest_away()]

    def rename_log_away(self) -> list[Path]:
        """Begin with the log, or do nothing; raises OSError."""
        away = self.path.with_name(self.path.name + filenames.DELETED_SUFFIX)
        try:
            files.rename(self.path, away)
        except FileNotFoundError:
            return []
        self.path = away
        return [away]

    def rename_rest_away(self) -> list[Path]:
        """Go on with the other files, as far as the disk lets us."""
        gone: list[Path] = []
        for suffix in reversed(_SUFFIXES[:-1]):
            path = self._path(suffix)
            away = path.with_name(path.name + filenames.DELETED_SUFFIX)
            try:
                files.rename(path, away)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning(
                    "file of a deleted segment left", extra={"file": path, "reason": str(error)}
                )
                continue
            gone.append(away)
        return gone

    def remove_indexes(self) -> None:
        """Remove the files that can be made anew; raises OSError."""
        for suffix in (filenames.OFFSET_INDEX_SUFFIX, filenames.TIME_INDEX_SUFFIX):
            files.unlink(self._path(suffix))

    def remove(self) -> None:
        """Remove every file of the segment but the snapshot; raises OSError."""
        self.is_active = False
        self.rest()
        for suffix in _SUFFIXES:
            files.unlink(self._path(suffix))
