"""What is known of the times in a segment's log, and its append times.

Promises that each batch is read at most once to learn its times: they come from `partition.times`,
from appends, or from the log (`survey`). After a truncation, times are read again only from the
last remembered place on. Append times cannot be rebuilt; their file is read when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage import filenames
from tidelog.storage.segment import survey
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.segment_line import CountedBefore
from tidelog.storage.time.adoption import NOT_ADOPTED
from tidelog.storage.time.event_time import EVENT_SLACK_MS
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import earlier

if TYPE_CHECKING:
    from tidelog.storage.segment.log_file import LogFile
    from tidelog.storage.segment.segment_files import SegmentFiles

_REMEMBER_BYTES = 256 * 1024
_REMEMBERED_TIMES = 8
_NO_TIMES = SegmentTimes(), 0
_NOTHING_COUNTED = CountedBefore(0, None)


class LogTimes:
    """The times in the first `size` bytes of a log, and the append times beside it."""

    __slots__ = (
        "_append_times",
        "_durable_offset",
        "_earlier",
        "_files",
        "_remembers_at",
        "adoptions",
        "counted_before",
        "event_slack_ms",
        "is_closed",
        "log",
        "size",
        "times",
    )

    def __init__(self, log: LogFile, files: SegmentFiles) -> None:
        """Knows nothing yet."""
        self.log = log
        self.times = SegmentTimes()
        self.size = 0
        self.is_closed = False  # `.appendtimes` ends with its END entry
        self.event_slack_ms = EVENT_SLACK_MS
        self.counted_before = _NOTHING_COUNTED
        self.adoptions = NOT_ADOPTED  # stands in for unknown append times
        self._files = files
        self._append_times: AppendTimes | None = None
        self._durable_offset: int | None = None  # append times before it are durable; see `adopt`
        self._earlier: tuple[tuple[SegmentTimes, int], ...] = ()  # remembered, the oldest first
        self._remembers_at = _REMEMBER_BYTES  # the size at which the next is due

    @property
    def is_complete(self) -> bool:
        """Whether the times of all batches are known, and there are batches."""
        return 0 < self.size == self.log.tail.size

    @property
    def append_times(self) -> AppendTimes:
        """The append times, read from their file; raises OSError."""
        append_times = self._append_times
        if append_times is None:
            file, times = self._files.of(filenames.APPEND_TIMES_SUFFIX), self.times
            append_times = AppendTimes(file, self._files.base_offset)
            append_times.load()
            last, is_known = times.last_append, self.is_complete
            if self.is_closed:
                is_sure = is_known and not times.has_unknown
                append_times.close_at(self.log.tail.end_offset, last if is_sure else None)
            if is_known and not append_times.confirm(times.created, last, self._durable_offset):
                times.has_unknown = True
            times.has_unknown |= append_times.has_lost
            self._append_times = append_times
        return append_times

    def reopen_append_times(self) -> None:
        """Prepares the file of append times for appends; what it has lost is marked in it.

        Raises OSError.
        """
        self._append_times = None
        append_times, tail = self.append_times, self.log.tail
        if not append_times and tail.size:
            append_times.mark_unknown()
            self.times.has_unknown = True
        append_times.settle()
        append_times.truncate(tail.end_offset)
        if self.is_closed:
            append_times.let_go_of_end()
        append_times.close()
        self.is_closed = False

    def adopt(self, times: SegmentTimes, size: int, durable_offset: int | None) -> None:
        """Copies what `partition.times` has about the first bytes of the log.

        Append times before `durable_offset` were durable; None: no power loss explains missing ones.
        """
        self.times, self.size, self._durable_offset = times.copy(), size, durable_offset

    def learn(self) -> SegmentTimes:
        """Returns the times of all batches; reads from the log what is not known. Raises OSError."""
        if self.size < self.log.tail.size:
            survey.catch_up(self)
        return self.times

    def replace(self, times: SegmentTimes, size: int) -> None:
        """Knows these times from now on."""
        self.times, self.size, self._earlier = times, size, ()
        self._remember()

    def advance(self, size: int) -> None:
        """Notes that the times of an appended batch are in `times`: they are those of `size` bytes."""
        self.size = size
        if size >= self._remembers_at:
            self._remember()

    def _remember(self) -> None:
        """Remembers the times so far: after a truncation they are read only from here on."""
        self._remembers_at = self.size + _REMEMBER_BYTES
        self._earlier = (*self._earlier[1 - _REMEMBERED_TIMES :], (self.times.copy(), self.size))

    def forget(self, size: int) -> bool:
        """Goes back to what was known of the times in at most the first `size` bytes of the log.

        Returns whether anything was forgotten.
        """
        if self.size <= size and size:
            return False
        self.counted_before = CountedBefore(min(size, self.size), self.times.event)
        created_clock = self.times.created_clock if size else None
        self._earlier = tuple(each for each in self._earlier if each[1] <= size)
        times, self.size = self._earlier[-1] if size and self._earlier else _NO_TIMES
        self.times = times = times.copy()
        times.created_clock = created_clock
        if times.event is not None:
            times.event = earlier(times.event, self.counted_before.event)
        self._remembers_at = self.size + _REMEMBER_BYTES
        return True

    def copy_from(self, other: LogTimes) -> None:
        """Copies what is known of a longer log that begins with this one."""
        self.times, self.size, self._earlier = other.times.copy(), other.size, other._earlier
        self.forget(self.log.tail.size)

    def rest(self) -> None:
        """Releases the descriptor, and of a sealed segment what can be read again."""
        if not self.log.is_active:
            self._append_times = None
            self._earlier = ()
        elif self._append_times is not None:
            self._append_times.close()
