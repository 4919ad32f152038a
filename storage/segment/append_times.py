"""When each batch of a segment was appended. Data, not an index; the file is described in `append_entries`.

An entry is written before the batch it describes and is cut with the log, so a crash leaves at most
one entry too many, at the log's end, and recovery cuts that off. It can never be rebuilt. Memory
holds how many entries there are and the last one; the others are looked up in the file.

In flush mode the file also has an end: what lies before its offset is known even after a power loss. It is
written over and moved on; one found in the middle is left of a power loss. It cannot claim too much:
sectors before it that never came hold zeros or an older end, which `check` finds.
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
    """Where the append times of a segment reach one, in offsets of the log.

    What was appended at it or after it begins at `offset`, unless it begins before, where nothing is
    known: from `unknown_from` on.
    """

    offset: int | None  # of the first entry known to be at or after it; None: no entry is
    unknown_from: int | None  # None: what lies before is known to be earlier


class AppendTimes:
    """One segment's append times: looked up in the file, written through at once.

    One thread changes them; any thread may ask meanwhile.
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
        """Describe the file; nothing is read before `load`."""
        self.file = NamedFile.of(path)
        self.base_offset = base_offset
        self._descriptor: files.Descriptor | None = None
        self._forget()

    def _forget(self) -> None:
        self._count = 0
        self._end: int | None = None  # what the file says behind the entries
        self._is_durable = False
        self._last = Entry(UNKNOWN, -1)
        self._last_known: int | None = None
        self._complete: bool | None = False  # None: nobody has looked yet

    @property
    def path(self) -> Path:
        """Where the file is now."""
        return self.file.path

    def __len__(self) -> int:
        return self._count

    def load(self) -> bool:
        """Look at the file; False when it is missing or is not one of ours, and nothing is known.

        A torn last entry is dropped, and so are zeros behind the entries, which a power loss may
        leave. What the entries say is believed; see `check`. Raises OSError.
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
        """Have the first `count` entries of the file; who asks meanwhile finds them all along."""
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
        """Check that the entries from an offset on can be; forget all from the first that cannot.

        What lies before the offset was durable; from there, or from behind the last entry that can be,
        nothing is known. False when that happened. Raises OSError.
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
        """Compare with when the first and the last batch are known to have been appended.

        A last entry with an earlier time is not the last: entries behind it have been cut off, and
        nothing is known there; a later one is of a batch that a crash has taken. A first entry with
        another time is none. Entries of what lies before `durable_offset` cannot have been cut off.
        False when something had to be forgotten. Raises OSError.
        """
        if not self._count:
            return True
        descriptor = self._reader()
        if append_entries.at(descriptor, 0).time not in (UNKNOWN, first_time):
            self.mark_unknown()
        elif self._last.time != UNKNOWN and (
            last_time is None or goes_back(last_time, self._last.time)
        ):
            vouched = self._end or 0  # partition.times may know of more than is durable
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
        """Keep the first entries, and know nothing from an offset on; up to `end` the file vouches."""
        self._shorten(descriptor, count)
        self._end = end if count else None  # it goes on saying so: the next crash may come at once
        self._cut_file()
        if count:
            self.append(UNKNOWN, relative_offset + self.base_offset)

    @property
    def has_end(self) -> bool:
        """Whether the file says up to where it vouches for itself: flush mode has written it."""
        return self._end is not None

    @property
    def end_offset(self) -> int:
        """What lies before this offset is vouched for by the file itself, even after a power loss."""
        return self.base_offset + (self._end or 0)

    @property
    def last_time(self) -> int | None:
        """The last known append time of the segment, None when it knows none."""
        return self._last_known

    @property
    def first_time(self) -> int | None:
        """When the segment's first batch was appended; None when that is unknown."""
        return self.at(self.base_offset)

    @property
    def is_complete(self) -> bool:
        """Whether the append time of every batch is known: the segment was written by us."""
        complete = self._complete
        if complete is None:
            complete = self._complete = not append_entries.has_unknown(self._reader(), self._count)
        return complete

    def at(self, offset: int) -> int | None:
        """Return when the batch with this offset was appended, None when that is unknown.

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
        """Return the entries by which the batches of these offsets go, as they are in the file.

        The first of them may begin before the offsets; where the first offset has none, nothing is known
        of it. Raises OSError.
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
        """The first append time that is known; None when none is. Raises OSError."""
        return next((entry.time for entry in self.entries() if entry.time != UNKNOWN), None)

    def first_reaching(self, append_time_ms: int) -> Reached:
        """Find what was appended at a time or after it; raises OSError.

        Known times never go back, so half of the entries is put aside at a time; unknown ones are
        passed over. Before a known earlier time nothing can be the answer, known or not.
        """
        low = high = count = self._count
        if not count:
            return Reached(None, self.base_offset)
        descriptor = self._reader()
        if reaches(self._last_known, append_time_ms):
            low = 0
        while low < high:
            middle = number = (low + high) // 2
            entry = append_entries.at(descriptor, number)
            while entry.time == UNKNOWN and number > low:
                number -= 1
                entry = append_entries.at(descriptor, number)
            if entry.time != UNKNOWN and reaches(entry.time, append_time_ms):
                high = number
            else:
                low = middle + 1
        unknown_from = None
        for before in reversed(range(high)):
            entry = append_entries.at(descriptor, before)
            if entry.time != UNKNOWN:
                break
            unknown_from = entry.offset + self.base_offset
        if high == count:
            return Reached(None, unknown_from)
        return Reached(append_entries.at(descriptor, high).offset + self.base_offset, unknown_from)

    def append(self, append_time_ms: int, offset: int) -> None:
        """Say that batches from `offset` on are appended at this time, if that is news.

        Raises OSError, and then nothing is changed: what may have reached the file lies behind the
        entries and is overwritten by the next one.
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
        """Say in the file that all is known before an offset, and that nothing is behind it.

        Durable with the next `sync`. Not beside an append. Raises OSError.
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
        """Make the entries durable, if there are new ones; raises OSError. Safe beside an append."""
        if not self._is_durable:
            self._is_durable = (
                True  # of what comes from here on, the append will say that it is not
            )
            files.sync_data(self._reader())

    def truncate(self, end_offset: int) -> None:
        """Forget the times of offsets from `end_offset` on, here and in the file. Raises OSError.

        Also cuts off what lies behind the last whole entry, so that the file is well formed.
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
        """Return the size of the file in bytes, 0 where there is none; raises OSError."""
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
        """Say that nothing is known of the segment, or from an offset on: somebody else wrote it.

        Raises OSError.
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
        """Let go of the file; what is known stays known."""
        self._descriptor = None

    def entries(self) -> Iterator[Entry]:
        """Go over all entries; raises OSError."""
        if self._count:
            yield from append_entries.walk(self._reader(), 0, self._count)

    def _reader(self) -> files.Descriptor:
        descriptor = self._descriptor
        return self.file.open() if descriptor is None else descriptor
