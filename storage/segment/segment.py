"""One segment: a `.log` file of whole batches that is appended to and read.

`log` is the file and the iteration over it, `indexes` finds offsets and times in it, `known` has
what is known of its times, and the append times. `time_search` searches by time. Readers that
continue where they stopped need no index. A sealed segment that has not been used for a while
holds no descriptor and no index (`rest`).

A crash may leave a torn batch at the end of the log, one append time too many, and too few index
entries; `recovery` truncates and completes them. The first lookup in a segment that another program
wrote reads all its records and builds the indexes anew. Headers are used if they agree with the
records. No batch is appended to such a segment: its indexes are not replaced under an append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import files
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.batch_headers import (
    HEADER_SIZE,
    PREFIX_SIZE,
    batch_size,
    below,
    first_offset_at,
    whole_size,
)
from tidelog.storage.segment.log_file import LogFile, Tail
from tidelog.storage.segment.log_indexes import LogIndexes
from tidelog.storage.segment.log_times import LogTimes
from tidelog.storage.segment.searching import Slice, broken_at, intact_part, locate
from tidelog.storage.segment.segment_files import SegmentFiles
from tidelog.storage.segment.transaction_index import TransactionIndex
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidelog.protocol.records.prepare import PreparedBatch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.segment.append_times import AppendTimes
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.offset_index import OffsetIndex
    from tidelog.storage.segment.segment_line import SegmentLine
    from tidelog.storage.segment.time_index import TimeIndex
    from tidelog.storage.time.segment_times import SegmentTimes

_MAX_HINTS = 32
_NO_HINTS: dict[int, int] = {}  # of every segment that has none
_SHORT_LOG_BYTES = 4 << 20  # the indexes of a smaller log are quickly rebuilt


class Segment:
    """The batches from `base_offset` up to the next segment."""

    __slots__ = (
        "__weakref__",
        "_has_torn_tail",
        "_hints",
        "_last_hint",
        "aborted",
        "base_offset",
        "files",
        "indexes",
        "known",
        "log",
    )

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        """Describes a segment; its files are opened when they are first needed."""
        self.base_offset = base_offset
        self.files = SegmentFiles(directory, base_offset)
        self.log = LogFile(self.files.log, tail)
        self.known = LogTimes(self.log, self.files)
        self.indexes = LogIndexes(self.log, self.files, self.known)
        self.aborted = TransactionIndex(self.files, base_offset)
        self._has_torn_tail = False  # a failed append may have left bytes behind the tail
        # Offset -> position of the batch that holds it, for readers that continue there.
        self._hints = _NO_HINTS
        self._last_hint = (-1, 0)  # the same for the last batch appended

    @property
    def tail(self) -> Tail:
        """The end of the log."""
        return self.log.tail

    @property
    def path(self) -> Path:
        """Where the log is now."""
        return self.log.file.path

    @property
    def append_times(self) -> AppendTimes:
        """The append times, read from their file; raises OSError."""
        return self.known.append_times

    @property
    def times(self) -> SegmentTimes:
        """The times of all batches; what is not known is read from the log. Raises OSError."""
        return self.known.learn()

    def largest_time(self) -> int | None:
        """Returns the largest record time, None if no record has one; raises OSError."""
        return self.known.learn().largest

    @property
    def index(self) -> OffsetIndex:
        """The offset index, which the next `rest` drops. Raises OSError."""
        self._keep_descriptor()
        return self.indexes.index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, which the next `rest` drops. Raises OSError."""
        self._keep_descriptor()
        return self.indexes.time_index

    def configure(self, event_slack_ms: int, index_interval_bytes: int) -> None:
        """Sets how event times count, and how dense rebuilt indexes are."""
        self.known.event_slack_ms = event_slack_ms
        self.indexes.interval_bytes = index_interval_bytes

    def adopt(self, line: SegmentLine, *, is_true: bool, covered_offset: int) -> None:
        """Copies what `partition.times` has about the first bytes of the log.

        Append times before `covered_offset` were durable. If that is all of the segment, no power
        loss explains missing ones.
        """
        durable_offset = covered_offset if covered_offset < line.end_offset else None
        self.known.adopt(line.times, line.size, durable_offset)
        self.indexes.least_entries = (line.index_entries, line.time_index_entries)
        self.indexes.is_true = self.indexes.are_true = is_true

    # --- the files --------------------------------------------------------------------------------

    def rest(self) -> None:
        """Releases descriptors and, once sealed, what can be read again when it is needed.

        Readers in other threads keep what they read from.
        """
        self.log.descriptor = None
        self.known.rest()
        self.indexes.rest()
        if not self.log.is_active:
            self._hints = _NO_HINTS
            self.aborted.rest()

    def give_up(self) -> None:
        """Never opens a file of the segment again: others may get their names."""
        self.files.give_up()
        self.rest()

    def sync(self) -> None:
        """Makes what was written durable; raises OSError. Safe beside an append."""
        self.indexes.write()
        self.files.sync()

    def commit(self) -> None:
        """Makes batches and append times durable, beside an append too; raises OSError."""
        files.RECENT.used(self)  # the append times are open for writing
        self.append_times.sync()
        files.sync_data(self.reader())

    def remove(self) -> None:
        """Removes every file of the segment except the snapshot; raises OSError."""
        self.log.is_active = False
        self.rest()
        self.files.remove()

    def _keep_descriptor(self) -> None:
        if not self.log.is_active:
            self.reader()

    def reader(self) -> files.Descriptor:
        """Returns a descriptor to read with; that of a sealed segment is kept until it rests."""
        log = self.log
        descriptor = log.descriptor
        if descriptor is None:
            descriptor = log.file.open()
            if log.is_active:
                return descriptor
            log.descriptor = descriptor
        if not log.is_active:
            files.RECENT.used(self)
        return descriptor

    def _writer(self) -> files.Descriptor:
        """Returns a descriptor to append with, which is kept; raises OSError."""
        descriptor = self.log.descriptor = self.log.file.open(writable=True)
        files.RECENT.used(self)
        return descriptor

    # --- appending --------------------------------------------------------------------------------

    def activate(self) -> None:
        """Makes this the active segment, with its file and append times ready; raises OSError.

        If another program may have written to it, it takes no appends (`LogFile.is_ended`).
        Its descriptors are opened by the first append, so an idle partition holds none.
        """
        log, indexes = self.log, self.indexes
        if not log.tail.size:
            indexes.is_true = indexes.are_true = True  # whoever wrote what has been cut off
        log.is_ended = not indexes.are_true
        log.is_active = True
        log.descriptor = None  # it may be read-only
        if not log.tail.size:
            files.make(self.path)
        indexes.continue_at_end()
        assert indexes.time_index is not None
        self.known.reopen_append_times()

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
        log, known = self.log, self.known
        assert log.takes_appends, "only the active segment takes batches"
        if self._has_torn_tail:
            self.repair_tail()
        end_offset, position = log.tail
        if known.size < position:
            known.learn()
        try:
            append_times = known.append_times
            descriptor = log.descriptor
            if descriptor is None:
                descriptor = self._writer()
            append_times.append(append_time_ms if is_time_known else UNKNOWN, end_offset)
            files.write_at(descriptor, buffers, position, size)
            if ends_times:
                append_times.mark_end(batches[-1].last_offset + 1)
        except OSError:
            self._has_torn_tail = True
            self.cut(log.tail)
            raise
        times, indexes = known.times, self.indexes
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
            if start - indexes.last_indexed > index_interval_bytes:
                indexes.index.append(batch.last_offset, start)
                indexes.time_index.append(times.largest, times.largest_offset)
                indexes.last_indexed = start
        if not is_time_known:
            times.note_adopted(append_time_ms)
        else:
            times.note_append(append_time_ms, clock_ms)
        known.advance(position + size)
        self._last_hint = (end_offset, position)
        # The same as Tail(...), without the Python frame of a NamedTuple's constructor.
        log.tail = tuple.__new__(Tail, (batches[-1].last_offset + 1, position + size))

    def repair_tail(self) -> None:
        """Truncates what a failed append left after the tail, if anything; raises OSError."""
        if self._has_torn_tail:
            self.cut(self.tail)

    def cut(self, tail: Tail) -> None:
        """Truncates the segment at the end of a batch; raises OSError.

        Log, indexes, append times and aborted transactions end there together. Known times of
        dropped batches are forgotten; part of them is then read from the log again.
        """
        self.log.tail = tail
        self._hints = _NO_HINTS
        self._last_hint = (-1, 0)
        if self.known.forget(tail.size):
            self.indexes.least_entries = (0, 0)
        if self.path.stat().st_size > tail.size:
            files.truncate(self.path, tail.size)
        self.indexes.truncate(tail)
        self.append_times.truncate(tail.end_offset)
        self.aborted.truncate(tail.end_offset)
        self._has_torn_tail = False

    def seal(self) -> None:
        """Makes the segment inactive: writes its indexes and releases its descriptors.

        Raises OSError when the indexes cannot be written; the segment can be read all the same.
        """
        try:
            self.indexes.complete()
        finally:
            self.log.is_active, self.known.is_closed = False, True
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
        tail = self.log.tail
        descriptor = self.reader()
        hint = self._last_hint
        position = hint[1] if hint[0] == offset else self._hints.get(offset)
        if position is None and offset <= self.base_offset:
            position = 0
        if position is None or position >= tail.size:
            if (
                not may_block
                and not self.indexes.is_index_in_memory
                and tail.size > _SHORT_LOG_BYTES
            ):
                raise WouldBlock(f"{self.path}: the index is not in memory")
            data, position = locate(self.log, self.indexes, descriptor, offset, max_bytes, tail)
        else:
            data = files.read_at(descriptor, min(max_bytes, tail.size - position), position)
        if position >= tail.size:
            return None
        head = data
        if len(head) < HEADER_SIZE:
            head = files.read_at(descriptor, min(HEADER_SIZE, tail.size - position), position)
        first_batch_size = batch_size(head) or 0
        if not PREFIX_SIZE < first_batch_size <= tail.size - position:
            raise broken_at(self.log, position)
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
            # Those before the broken batch.
            view = below(intact_part(self.log, view, position), head, upper_offset)
            return Slice(view, first_batch_size, None) if view else None
        at_end = position + len(view) == tail.size
        return Slice(view, first_batch_size, tail.end_offset if at_end else None)

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[Found]:
        """Iterates over the batches; see `LogFile.walk`."""
        self._keep_descriptor()
        return self.log.walk(position, end)

    def header_of(self, offset: int) -> Found | None:
        """Returns the batch that holds `offset`, None if the segment has none."""
        self._keep_descriptor()
        return self.indexes.header_of(offset)

    def _remember(self, view: memoryview, position: int, tail: Tail) -> None:
        """Notes the position after the batches just read, where their reader will continue."""
        whole = whole_size(view)
        offset = first_offset_at(view, whole)
        if offset is None:
            if position + whole != tail.size:
                return
            offset = tail.end_offset
        hints = self._hints
        if not 0 < len(hints) < _MAX_HINTS:
            hints = self._hints = {}
        hints[offset] = position + whole
