"""One segment: a `.log` file of whole batches that is appended to and read.

`log_file` has the log and the iteration over it, `indexed_log` the indexes and times, `time_search` the
search by time. Readers that continue where they stopped need no index.

A crash may leave a torn batch at the end of the log, one append time too many, and too few index
entries; `recovery` truncates and completes them. The first lookup in a segment that another program
wrote reads all its records and builds the indexes anew. Headers are used if they agree with the
records. No batch is appended to such a segment: its indexes are not replaced under an append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import find_offset
from tidelog.storage import files
from tidelog.storage.segment import offset_index, survey, time_index
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.batch_headers import (
    HEADER_SIZE,
    PREFIX_SIZE,
    batch_size,
    below,
    first_offset_at,
    intact_size,
    last_offset_at,
    whole_size,
)
from tidelog.storage.segment.indexed_log import IndexedLog
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.transaction_index import TransactionIndex
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.protocol.records.prepare import PreparedBatch
    from tidelog.protocol.wire import Buffer

_SLACK = 8 * 1024  # read beyond max_bytes, for the batches between an index entry and the offset
_MAX_HINTS = 32
_MOST_ENTRY_BYTES = 2 * time_index.ENTRY_SIZE  # of both indexes, for an entry of the offset index
_SHORT_LOG_BYTES = 4 << 20  # the indexes of a smaller log are quickly rebuilt


class Slice(NamedTuple):
    """The result of reading one segment."""

    data: memoryview  # begins with the batch that holds the offset; may end within a batch
    first_batch_size: int
    next_offset: int | None  # the segment's end offset, if the data ends there


class Segment(IndexedLog):
    """The batches from `base_offset` up to the next segment."""

    __slots__ = ("_has_torn_tail", "_hints", "_last_hint", "aborted")

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        """Describes a segment; its files are opened when they are first needed."""
        super().__init__(directory, base_offset, tail)
        self.aborted = TransactionIndex(self.files, base_offset)
        self._has_torn_tail = False  # a failed append may have left bytes behind the tail
        # Offset -> position of the batch that holds it, for readers that continue there.
        self._hints: dict[int, int] = {}
        self._last_hint = (-1, 0)  # the same for the last batch appended

    def rest(self) -> None:
        """Releases what can be read again; see `IndexedLog`."""
        super().rest()
        if not self.is_active:
            self._hints = {}
            self.aborted.rest()

    # --- appending --------------------------------------------------------------------------------

    def activate(self) -> None:
        """Makes this the active segment, with its file and append times ready; raises OSError.

        If another program may have written to it, it takes no appends (`is_ended`).
        Its descriptors are opened by the first append, so an idle partition holds none.
        """
        if not self.tail.size:
            self.is_true = self.has_true_indexes = True  # whoever wrote what has been cut off
        self.is_ended = not self.has_true_indexes
        self.is_active = True
        self._descriptor = None  # it may be read-only
        if not self.tail.size:
            files.make(self.path)
        last = self.index.last()
        self._last_indexed = 0 if last is None else last.position
        assert self.time_index is not None
        self._reopen_append_times()

    def _reopen_append_times(self) -> None:
        """Lets append times go on where they end; what the file has lost is marked in it."""
        self._append_times = None
        append_times = self.append_times
        if not append_times and self.tail.size:
            append_times.mark_unknown()
            self._times.has_unknown = True
        append_times.settle()
        append_times.truncate(self.tail.end_offset)
        if self.is_closed:
            append_times.let_go_of_end()
        append_times.close()
        self.is_closed = False

    def has_room(self, size: int, last_offset: int, max_bytes: int, index_bytes: int) -> bool:
        """Returns whether the segment may take a batch; an empty segment takes any.

        `index_bytes` is the size that none of its indexes may exceed.
        """
        used = self.tail.size
        if not used:
            return True
        return (
            used + size <= max_bytes
            and last_offset - self.base_offset <= offset_index.MAX_RELATIVE_OFFSET
            and (len(self.index) * _MOST_ENTRY_BYTES < index_bytes or self._have_room(index_bytes))
        )

    def _have_room(self, index_bytes: int) -> bool:
        """Returns whether both indexes may take one more entry."""
        counts = len(self.index), len(self.time_index)
        limits = index_bytes // offset_index.ENTRY_SIZE, index_bytes // time_index.ENTRY_SIZE
        return all(count < limit for count, limit in zip(counts, limits, strict=True))

    def append(
        self,
        buffers: Sequence[Buffer],
        size: int,
        batches: Sequence[PreparedBatch],
        append_time_ms: int,
        event_limit: int,
        index_interval_bytes: int,
        clock_ms: int | None = None,
        *,
        is_time_known: bool = True,
        ends_times: bool = False,
    ) -> None:
        """Writes batches after the last one, all or nothing.

        With `is_time_known` false, the batches were appended at `append_time_ms` or earlier. With
        `ends_times` the append times say that they are complete. `clock_ms` is what the clock
        shows. Raises OSError, and then the log ends where it ended before. If truncating it fails
        too, the next append or recovery does that.
        """
        assert self.takes_appends, "only the active segment takes batches"
        if self._has_torn_tail:
            self.repair_tail()
        end_offset, position = self.tail
        if self._known_size < position:
            survey.catch_up(self)
        try:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._writer()
            self.append_times.append(append_time_ms if is_time_known else UNKNOWN, end_offset)
            files.write_at(descriptor, buffers, position, size)
            if ends_times:
                self.append_times.mark_end(batches[-1].last_offset + 1)
        except OSError:
            self._has_torn_tail = True
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
        if not is_time_known:
            times.note_adopted(append_time_ms)
        else:
            times.note_append(append_time_ms, clock_ms)
        self._known_size = position + size
        if self._known_size >= self._remembers_at:
            self.remember_times()
        self._last_hint = (end_offset, position)
        # The same as Tail(...), without the Python frame of a NamedTuple's constructor.
        self.tail = tuple.__new__(Tail, (batches[-1].last_offset + 1, position + size))

    def repair_tail(self) -> None:
        """Truncates what a failed append left after the tail, if anything; raises OSError."""
        if self._has_torn_tail:
            self.cut(self.tail)

    def cut(self, tail: Tail) -> None:
        """Truncates the segment at the end of a batch; raises OSError.

        Log, indexes, append times and aborted transactions end there together. Known times of
        dropped batches are forgotten; part of them is then read from the log again.
        """
        self.tail = tail
        self._hints = {}
        self._last_hint = (-1, 0)
        self.forget_times(tail.size)
        if self.path.stat().st_size > tail.size:
            files.truncate(self.path, tail.size)
        self.truncate_indexes(tail)
        self.append_times.truncate(tail.end_offset)
        self.aborted.truncate(tail.end_offset)
        self._has_torn_tail = False

    def seal(self) -> None:
        """Makes the segment inactive: writes its indexes and releases its descriptors.

        Raises OSError when the indexes cannot be written; the segment can be read all the same.
        """
        try:
            self.complete_indexes()
        finally:
            self.is_active, self.is_closed = False, True
            self.rest()

    # --- reading ----------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        minimum_one: bool,
        may_block: bool = True,
    ) -> Slice | None:
        """Reads up to `max_bytes`, from the batch that holds `offset` or the next one.

        Returns only batches that end before `upper_offset`, and before one that is broken. With
        `minimum_one` the first batch is returned whole, whatever its size. Returns None if the
        segment has nothing there. Raises OSError, and CorruptMessage if the first batch is not in
        the file as its header says; without `may_block` also WouldBlock, if the index of a long
        segment must be read or rebuilt first.
        """
        tail = self.tail
        descriptor = self._reader()
        hint = self._last_hint
        position = hint[1] if hint[0] == offset else self._hints.get(offset)
        if position is None and offset <= self.base_offset:
            position = 0
        if position is None or position >= tail.size:
            if not may_block and self._index is None and tail.size > _SHORT_LOG_BYTES:
                raise WouldBlock(f"{self.path}: the index is not in memory")
            data, position = self._locate(descriptor, offset, max_bytes, tail)
        else:
            data = files.read_at(descriptor, min(max_bytes, tail.size - position), position)
        if position >= tail.size:
            return None
        head = data
        if len(head) < HEADER_SIZE:
            head = files.read_at(descriptor, min(HEADER_SIZE, tail.size - position), position)
        first_batch_size = batch_size(head) or 0
        if not PREFIX_SIZE < first_batch_size <= tail.size - position:
            raise self._broken(position)
        if minimum_one and len(data) < first_batch_size:
            data = files.read_at(descriptor, first_batch_size, position)
        view = memoryview(data)[: max(max_bytes, first_batch_size if minimum_one else 0)]
        try:
            if upper_offset < tail.end_offset:
                view = below(view, head, upper_offset)
                if not view:
                    return None
            self._remember(view, position, tail)
        except CorruptMessage:
            return self._before_broken(view, head, position, upper_offset)
        at_end = position + len(view) == tail.size
        return Slice(view, first_batch_size, tail.end_offset if at_end else None)

    def _broken(self, position: int) -> CorruptMessage:
        return CorruptMessage(f"{self.path} has a broken batch at {position}")

    def _before_broken(
        self, view: memoryview, head: Buffer, position: int, upper_offset: int
    ) -> Slice | None:
        """Returns the batches of a view before one that is broken. Raises CorruptMessage."""
        first_batch_size = batch_size(head) or 0
        good = view[: intact_size(view)]
        if not good:
            raise self._broken(position)
        good = below(good, head, upper_offset)
        return Slice(good, first_batch_size, None) if good else None

    def _locate(
        self, descriptor: files.Descriptor, offset: int, max_bytes: int, tail: Tail
    ) -> tuple[bytes | memoryview, int]:
        """Returns bytes from the first batch that ends at or after `offset`, and its position.

        The position is the tail's size if there is none. One read is usually enough: it begins at
        the index entry, and the batches before the offset are skipped in memory.
        """
        entry = self.index.floor(offset)
        position = 0 if entry is None else entry.position
        size = max_bytes + _SLACK
        while position < tail.size:
            data = files.read_at(descriptor, min(size, tail.size - position), position)
            if entry is not None and last_offset_at(data) != entry.offset:
                # The index does not match the log; the log is right.
                entry, position = None, 0
                if self.takes_appends:
                    self.index.clear()
                else:
                    survey.rebuild_indexes(self)
                continue
            entry = None
            try:
                skipped = find_offset(data, offset)
            except CorruptMessage:
                raise self._broken(position + intact_size(data)) from None
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
        """Returns the position of the batch at or after an offset, else the end; raises OSError."""
        return self._locate(self._reader(), offset, 0, self.tail)[1]

    def end_before(self, offset: int) -> Tail:
        """Returns where the last batch ends that lies completely before an offset.

        That is the segment's beginning if there is none. Raises OSError and CorruptMessage.
        """
        position = self.position_of(offset)
        if position >= self.tail.size:
            return self.tail
        entry = self.index.last_before(position - 1)
        end_offset = self.base_offset
        for found in self.walk(0 if entry is None else entry.position, position):
            end_offset = found.batch.last_offset + 1
        return Tail(end_offset, position)

    def _remember(self, view: memoryview, position: int, tail: Tail) -> None:
        """Notes the position after the batches just read, where their reader will continue."""
        whole = whole_size(view)
        offset = first_offset_at(view, whole)
        if offset is None:
            if position + whole != tail.size:
                return
            offset = tail.end_offset
        if len(self._hints) >= _MAX_HINTS:
            self._hints = {}
        self._hints[offset] = position + whole

    def largest_time(self) -> int | None:
        """Returns the largest record time, None if no record has one; raises OSError."""
        return self.times.largest
