"""The append time of each batch of a segment. Data, not an index; `append_entries` has the file format.

An entry is written before the batch it describes and is truncated with the log. So a crash leaves
at most one entry too many, at the end of the log, and recovery removes it. The file can never be
rebuilt. Memory holds the number of entries and the last one; others are looked up in the file.

In flush mode the file also has an END entry: what lies before its offset is known even after a
power loss. Each append overwrites it and writes it behind the new entry; an END among the entries
is left from a power loss. It cannot claim too much: sectors before it that were not written hold
zeros or an older END, which `check` finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage import files
from storage.segment import append_entries
from storage.segment.append_entries import END, ENTRY, ENTRY_SIZE, HEADER, UNKNOWN, Entry
from storage.segment.named_file import NamedFile
from storage.time.append_time import goes_back
from storage.time.lookup import reaches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Reached(NamedTuple):
    """Where the append times of a segment reach a given time, in offsets of the log.

    Batches appended at that time or later begin at `offset`. They may begin earlier, from
    `unknown_from` on, where append times are unknown.
    """

    offset: int | None  # of the first known entry at or after the time; None: there is none
    unknown_from: int | None  # None: everything before `offset` is known to be earlier


class AppendTimes:
    """The append times of one segment: looked up in the file, written through at once.

    One thread changes them; any thread may read meanwhile.
    """

    __slots__ = (
        "_complete",
        "_count",
        "_descriptor",
        "_end",
        "_is_durable",
        "_last",
        "_last_known",
        "base_offset",
        "file",
    )

    def __init__(self, path: Path | NamedFile, base_offset: int) -> None:
        """Names the file; nothing is read before `load`."""
        self.file = NamedFile.of(path)
        self.base_offset = base_offset
        self._descriptor: files.Descriptor | None = None
        self._forget()

    def _forget(self) -> None:
        self._count = 0
        self._end: int | None = None  # the offset of the END entry
        self._is_durable = False
        self._last = Entry(UNKNOWN, -1)
        self._last_known: int | None = None
        self._complete: bool | None = False  # None: not known yet

    @property
    def path(self) -> Path:
        """Where the file is now."""
        return self.file.path

    def __len__(self) -> int:
        return self._count

    def load(self) -> bool:
        """Reads the file's end.

        False if the file is missing or not ours, and then no time is known.

        A torn last entry is dropped, and so are zeros after the entries, which a power loss may
        leave. The entries themselves are believed; see `check`. Raises OSError.
        """
        self._forget()
        self._descriptor = None
        try:
            descriptor = self.file.open()
        except FileNotFoundError:
            return False
        if files.read_at(descriptor, len(HEADER), 0) != HEADER:
            return False
        count = (descriptor.size() - len(HEADER)) // ENTRY_SIZE
        if count and append_entries.at(descriptor, 0).offset == 0:
            self._shorten(descriptor, append_entries.before_zeros(descriptor, count))
            if self._last.time == END:
                end = self._last.offset
                self._shorten(descriptor, self._count - 1)
                self._end = end
        return bool(self._count)

    def _shorten(self, descriptor: files.Descriptor, count: int) -> None:
        """Uses only the first `count` entries; readers in other threads can always read these."""
        if count <= 0:
            self._forget()
            return
        last, known = append_entries.at(descriptor, count - 1), None
        for entry in append_entries.backwards(descriptor, count):
            if entry.time != UNKNOWN:
                known = entry.time
                break
        self._last, self._count = last, count
        self._last_known, self._complete = known, None
        self._end, self._is_durable = None, False

    def check(self, from_offset: int) -> bool:
        """Checks the entries from an offset on; forgets all from the first impossible one on.

        What lies before the offset was durable. From there, or from the end of the last possible
        entry, append times are unknown. False when that happened. Raises OSError.
        """
        if not self._count:
            return True
        descriptor, durable = self._reader(), from_offset - self.base_offset
        count = append_entries.growing(descriptor, self._count)
        first = max(append_entries.floor(descriptor, durable, count), 0)
        last = Entry(UNKNOWN, -1) if first == 0 else append_entries.at(descriptor, first - 1)
        known = None if last.time == UNKNOWN else last.time
        for at, entry in enumerate(append_entries.walk(descriptor, first, count), first):
            if not append_entries.may_follow(entry, last, known, is_first=at == 0):
                self._end_at(descriptor, at, max(last.offset + 1, durable))
                return False
            last = entry
            known = known if entry.time == UNKNOWN else entry.time
        if count == self._count:
            return True
        entry = append_entries.at(descriptor, count)
        is_end = entry.time == END  # of an earlier commit: others came behind it, and none over it
        offset = max(entry.offset if is_end else last.offset + 1, durable)
        self._end_at(descriptor, count, offset, offset if is_end else None)
        return False

    def confirm(
        self, first_time: int | None, last_time: int | None, durable_offset: int | None = None
    ) -> bool:
        """Compares with the known append times of the first and the last batch.

        If the last entry has a smaller time than the last batch, entries after it are lost, and
        times there are unknown. If it has a larger one, it belongs to a batch that a crash has
        removed. If the first entry has another time than the first batch, all entries are
        worthless. Entries before `durable_offset` cannot be lost. False when something had to be
        forgotten. Raises OSError.
        """
        if not self._count:
            return True
        descriptor = self._reader()
        if append_entries.at(descriptor, 0).time not in (UNKNOWN, first_time):
            self.mark_unknown()
        elif self._last.time != UNKNOWN and (
            last_time is None or goes_back(last_time, self._last.time)
        ):
            vouched = self._end or 0  # partition.times may describe more than is durable
            if durable_offset is not None:
                vouched = max(durable_offset - self.base_offset, vouched)
            if self._end is None:
                self._end_at(descriptor, self._count, max(self._last.offset + 1, vouched))
            else:
                count = append_entries.floor(descriptor, vouched - 1, self._count) + 1
                self._end_at(descriptor, count, vouched, end=vouched)
        else:
            return True
        return False

    def _end_at(
        self,
        descriptor: files.Descriptor,
        count: int,
        relative_offset: int,
        end: int | None = None,
    ) -> None:
        """Keeps the first `count` entries; append times from an offset on are unknown.

        `end` is the offset of the new END entry, None for none.
        """
        self._shorten(descriptor, count)
        self._end = end if count else None  # kept in the file: the next crash may come at once
        self._cut_file()
        if count:
            self.append(UNKNOWN, relative_offset + self.base_offset)

    @property
    def has_end(self) -> bool:
        """Whether the file has an END entry, which flush mode writes."""
        return self._end is not None

    @property
    def end_offset(self) -> int:
        """Append times before this offset are durable, as the file's END entry says."""
        return self.base_offset + (self._end or 0)

    @property
    def last_time(self) -> int | None:
        """The last known append time of the segment, None if none is known."""
        return self._last_known

    @property
    def first_time(self) -> int | None:
        """The append time of the segment's first batch, None if it is unknown."""
        return self.at(self.base_offset)

    @property
    def is_complete(self) -> bool:
        """Whether the append time of every batch is known: no other program wrote any."""
        complete = self._complete
        if complete is None:
            complete = self._complete = not append_entries.has_unknown(self._reader(), self._count)
        return complete

    def unknown_end(self, end_offset: int) -> int:
        """Returns the offset from which on all append times are known; raises OSError.

        The segment ends at `end_offset`. It is that if the last append time is unknown, and the
        base offset if all are known.
        """
        if not self._count:
            return end_offset
        known = append_entries.known_from(self._reader(), self._count)
        return end_offset if known is None else known + self.base_offset

    def at(self, offset: int) -> int | None:
        """Returns the append time of the batch with this offset, None if it is unknown.

        Raises OSError.
        """
        relative_offset, last = offset - self.base_offset, self._last
        if relative_offset >= last.offset >= 0:
            return None if last.time == UNKNOWN else last.time
        if relative_offset < 0 or not self._count:
            return None
        descriptor = self._reader()
        found = append_entries.floor(descriptor, relative_offset, self._count)
        if found < 0:
            return None
        time = append_entries.at(descriptor, found).time
        return None if time == UNKNOWN else time

    def entries_between(self, first_offset: int, last_offset: int) -> bytes:
        """Returns the bytes of the entries that hold for a range of offsets.

        The first entry may begin before the range. If no entry holds for the first offset, its
        append time is unknown. Raises OSError.
        """
        count, last_entry = self._count, self._last
        if not count:
            return b""
        if first_offset - self.base_offset >= last_entry.offset >= 0:
            return ENTRY.pack(*last_entry)
        descriptor = self._reader()
        first = max(append_entries.floor(descriptor, first_offset - self.base_offset, count), 0)
        last = append_entries.floor(descriptor, last_offset - self.base_offset, count)
        return append_entries.read(descriptor, first, last + 1 - first) if first <= last else b""

    @property
    def first_known_time(self) -> int | None:
        """The first append time that is known, None if none is. Raises OSError."""
        return next((entry.time for entry in self.entries() if entry.time != UNKNOWN), None)

    def first_reaching(self, append_time_ms: int) -> Reached:
        """Finds the first batches appended at a time or later; raises OSError."""
        count, base_offset = self._count, self.base_offset
        if not count:
            return Reached(None, base_offset)
        descriptor = self._reader()
        number = count
        if reaches(self._last_known, append_time_ms):
            number = append_entries.first_reaching(descriptor, count, append_time_ms)
        unknown = append_entries.unknown_before(descriptor, number)
        return Reached(
            None if number == count else append_entries.at(descriptor, number).offset + base_offset,
            None if unknown is None else unknown.offset + base_offset,
        )

    def append(self, append_time_ms: int, offset: int) -> None:
        """Notes that batches from `offset` on are appended at this time, if it is a new one.

        Raises OSError, and then nothing has changed: bytes that may have reached the file lie after
        the entries, and the next entry overwrites them.
        """
        count = self._count
        if append_time_ms == self._last[0] and count:
            return
        relative_offset = offset - self.base_offset
        entry = ENTRY.pack(append_time_ms, relative_offset)
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = self.file.open(writable=True)
        if count == 0:
            files.write_at(descriptor, (HEADER, entry), 0, len(HEADER) + ENTRY_SIZE)
            self._complete = append_time_ms != UNKNOWN
        else:
            position = len(HEADER) + count * ENTRY_SIZE
            if self._end is not None:
                self._end = relative_offset
                entry += ENTRY.pack(END, relative_offset)
            files.write_at(descriptor, (entry,), position, len(entry))
        if append_time_ms == UNKNOWN:
            self._complete = False
        else:
            self._last_known = append_time_ms
        self._count = count + 1
        self._last = Entry(append_time_ms, relative_offset)
        self._is_durable = False

    def mark_end(self, end_offset: int) -> None:
        """Writes an END entry: all times before the offset are known, and nothing follows.

        Durable with the next `sync`. Not to be called during an append. Raises OSError.
        """
        relative_offset = end_offset - self.base_offset
        if self._count and relative_offset != self._end:
            self._write_end(relative_offset)

    def _write_end(self, relative_offset: int) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = self.file.open(writable=True)
        position = len(HEADER) + self._count * ENTRY_SIZE
        files.write_at(descriptor, (ENTRY.pack(END, relative_offset),), position, ENTRY_SIZE)
        self._end = relative_offset
        self._is_durable = False

    def sync(self) -> None:
        """Makes new entries durable; raises OSError. May run during an append."""
        if not self._is_durable:
            self._is_durable = (
                True  # of what comes from here on, the append will say that it is not
            )
            files.sync_data(self._reader())

    def truncate(self, end_offset: int) -> None:
        """Forgets the times of offsets from `end_offset` on, in memory and in the file.

        Raises OSError.

        Also removes what lies after the last whole entry, so that the file is well formed.
        """
        relative_offset, end = end_offset - self.base_offset, self._end
        if self._count and self._last.offset >= relative_offset:
            descriptor = self._reader()
            self._shorten(
                descriptor, append_entries.floor(descriptor, relative_offset - 1, self._count) + 1
            )
        if end is not None and self._count and (self._end is None or end > relative_offset):
            self._write_end(relative_offset)
        self._cut_file()

    def size(self) -> int:
        """Returns the size of the file in bytes, 0 if it does not exist; raises OSError."""
        try:
            return self.file.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _cut_file(self) -> None:
        entries = self._count + (self._end is not None)
        size = len(HEADER) + entries * ENTRY_SIZE if self._count else 0
        if self.size() > size:
            files.truncate(self.file.path, size)

    def mark_unknown(self, from_offset: int | None = None) -> None:
        """Marks the append times of the segment, or those from an offset on, as unknown.

        They are unknown where another program wrote the batches. Raises OSError.
        """
        if from_offset is not None and from_offset > self.base_offset and self._count:
            self.truncate(from_offset)
            self.append(UNKNOWN, from_offset)
            return
        self._descriptor = None
        files.replace(self.file.path, HEADER + ENTRY.pack(UNKNOWN, 0), losable=True)
        self._forget()
        self._last = Entry(UNKNOWN, 0)
        self._count = 1

    def close(self) -> None:
        """Releases the descriptor; the times in memory stay known."""
        self._descriptor = None

    def entries(self) -> Iterator[Entry]:
        """Iterates over all entries; raises OSError."""
        if self._count:
            yield from append_entries.walk(self._reader(), 0, self._count)

    def _reader(self) -> files.Descriptor:
        descriptor = self._descriptor
        return self.file.open() if descriptor is None else descriptor
