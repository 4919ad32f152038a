"""The time index of a segment: from a time to the batch that first reached it, sparsely (KIP-33).

The `.timeindex` has Apache Kafka's format: entries of twelve bytes, big-endian,

    int64 timestamp         the largest record time of the segment so far; never negative
    int32 relative offset   last offset of the batch that first reached it (of an uncompressed
                            message of format 0 or 1: its own), minus the segment's base offset

Kafka's tools expect times from 0 on. The entries with negative times are in a file of ours,
`.negativetimes`: eight bytes ("tidn", int32 version 1), then the same entries. They come before
those of the `.timeindex`, because the largest time only grows. A segment whose largest time was
never negative has no such file.

Both fields grow strictly, through both files. This index gets an entry with every entry of the
offset index, if the largest time has grown since the last one, and one more when the segment is
rolled or closed. So for two neighbours (t, o) and (u, p), a time above t and up to u is first
reached by a batch that ends at p or before, and after the last entry of the offset index that lies
before p. A reader scans no more than that.

Entries gather in memory and `flush` writes them, after the offset index's. The index can be rebuilt
from the log, which is done if it is missing or shorter than it was. Kafka preallocates its file:
the first time that does not grow, such as a zero, ends the entries.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.segment.sparse_index import NOT_OURS, IndexFile, SparseIndex, used_part
from tidelog.storage.time.lookup import count_growing, count_negative, is_indexed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.storage.segment.named_file import NamedFile
    from tidelog.storage.segment.offset_index import IndexEntry

ENTRY_SIZE = 12
NEGATIVE_HEADER = b"tidn\0\0\0\1"
_ENTRY = struct.Struct(">qi")


class TimeEntry(NamedTuple):
    """The largest time so far, and the last offset of the batch that first reached it."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """The time index of one segment: in memory while in use, in two files when flushed."""

    __slots__ = ("_negatives", "_offsets", "_times", "has_negatives_file")

    entry_size = ENTRY_SIZE

    def __init__(
        self,
        path: Path | NamedFile,
        base_offset: int,
        negatives_path: Path | NamedFile | None = None,
    ) -> None:
        """Begins with an empty index. Without a second file, `flush` drops negative times."""
        super().__init__(path, base_offset)
        self._negatives: IndexFile | None = None
        if negatives_path is not None:
            self._negatives = IndexFile(negatives_path, ENTRY_SIZE, NEGATIVE_HEADER)
        self.has_negatives_file = False  # it was there when it was read, or has to be

    def clear(self) -> None:
        """Drops all entries in memory; the files keep their own until the next flush."""
        super().clear()
        if self._negatives is not None:
            self._negatives.count = NOT_OURS

    def _forget(self) -> None:
        self._times = array("q")
        self._offsets = array("i")

    def _keep(self, count: int) -> None:
        del self._offsets[count:]
        del self._times[count:]

    def _packed(self, start: int, end: int) -> bytes:
        return b"".join(map(_ENTRY.pack, self._times[start:end], self._offsets[start:end]))

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def _count_negative(self) -> int:
        """How many entries have negative times: those of the file of ours."""
        return count_negative(self._times, len(self._offsets))

    def flush(self) -> None:
        """Brings the files up to date, not yet durably; raises OSError."""
        with self.flush_lock:
            count, negative = len(self), self._count_negative
            self._flush_negatives(negative)
            self._file.write(
                count - negative,
                lambda start, end: self._packed(negative + start, negative + end),
            )

    def _flush_negatives(self, count: int) -> None:
        file = self._negatives
        if file is None:
            return
        if count and not file.count:
            file.count = NOT_OURS  # there may be no file yet
        if count or self.has_negatives_file:
            file.write(count, self._packed)
            self.has_negatives_file = True
        elif file.count:
            file.remove()
            file.count = 0

    @property
    def is_anew(self) -> bool:
        """Whether the next flush replaces what an older index has in its files."""
        negatives = self._negatives
        return super().is_anew or (negatives is not None and negatives.count == NOT_OURS)

    def remove_file(self) -> bool:
        """Removes the files, which the next flush creates again; False if there are none.

        Raises OSError.
        """
        were_there = super().remove_file()
        return (self._negatives is not None and self._negatives.remove()) or were_there

    def load(self) -> bool:
        """Reads the files; False, with an empty index, if Kafka's is missing. Raises OSError.

        A torn last entry is dropped, and everything from the first entry on that does not grow.
        """
        self.clear()
        try:
            data = self._file.file.read()
        except FileNotFoundError:
            return False
        is_whole = self._load_negatives()
        negative = len(self._offsets)
        times, offsets = parse(data)
        if not is_whole or (negative and offsets and offsets[0] <= self._offsets[-1]):
            times, offsets = times[:0], offsets[:0]  # these do not follow the entries before them
        self._times += times
        self._offsets += offsets
        self._file.note_read(len(data), len(offsets))
        return True

    def _load_negatives(self) -> bool:
        """Reads the file of negative times, if there is one; False if it is not whole."""
        self.has_negatives_file = False
        file = self._negatives
        if file is None:
            return True
        try:
            data = file.file.read()
        except FileNotFoundError:
            file.count = 0
            return True
        self.has_negatives_file = True
        self._times, self._offsets = parse_negatives(data)
        file.note_read(len(data), len(self._offsets))
        return file.count != NOT_OURS

    def lacks_negatives(self, first: IndexEntry | None) -> bool:
        """Returns whether the file of negative times is missing though the segment may need it.

        `first` is the first entry of the offset index. If this index got no entry with it, no time
        was known by then, or a negative one.
        """
        if self.has_negatives_file or first is None:
            return False
        return not len(self) or self._entry(0).offset > first.offset

    def append(self, largest: int | None, offset: int) -> None:
        """Adds, in memory, the largest time so far if it has grown since the last entry."""
        times = self._times
        if not is_indexed(largest, times[-1] if times else None):
            return
        assert largest is not None
        # The offset goes last: a reader in another thread trusts len() of the offsets.
        times.append(largest)
        self._offsets.append(offset - self.base_offset)

    def first_reaching(self, timestamp: int) -> TimeEntry | None:
        """Returns the first entry whose time is `timestamp` or later, None if there is none."""
        count = len(self._offsets)
        found = bisect_left(self._times, timestamp, 0, count)
        return self._entry(found) if found < count else None

    def last(self) -> TimeEntry | None:
        """Returns the last entry, None if there is none."""
        count = len(self._offsets)
        return self._entry(count - 1) if count else None

    def entries(self) -> list[TimeEntry]:
        """Lists all entries."""
        return [self._entry(number) for number in range(len(self._offsets))]

    def _entry(self, number: int) -> TimeEntry:
        return TimeEntry(self._times[number], self.base_offset + self._offsets[number])

    def truncate(self, end_offset: int) -> None:
        """Drops the entries of batches that end at or after an offset."""
        with self.flush_lock:
            negative = self._count_negative
            self._keep(bisect_left(self._offsets, end_offset - self.base_offset))
            self._file.keep(max(len(self) - negative, 0))
            if self._negatives is not None:
                self._negatives.keep(len(self))


def parse(data: bytes) -> tuple[array[int], array[int]]:
    """Returns the times and relative offsets in the bytes of a `.timeindex`.

    They end with the last whole entry that grows. Zeros after them are dropped.
    """
    times, offsets = _columns(used_part(data, ENTRY_SIZE))
    count = count_growing(times)
    if count and (count_negative(times, count) or (not times[0] and not offsets[0])):
        count = 0  # zeros; if this was an entry after all, it is rebuilt from the log
    return _while_growing(times, offsets, count)


def parse_negatives(data: bytes) -> tuple[array[int], array[int]]:
    """Returns the times and relative offsets in the bytes of a `.negativetimes`.

    They end with the last whole entry that grows. There are none if the header is wrong.
    """
    start = len(NEGATIVE_HEADER)
    end = start + (len(data) - start) // ENTRY_SIZE * ENTRY_SIZE
    times, offsets = _columns(data[start:end] if data.startswith(NEGATIVE_HEADER) else b"")
    count = count_negative(times, count_growing(times))
    return _while_growing(times, offsets, count)


def _columns(data: bytes) -> tuple[array[int], array[int]]:
    return _column("q", data, 0), _column("i", data, 8)


def _while_growing(
    times: array[int], offsets: array[int], count: int
) -> tuple[array[int], array[int]]:
    """Returns at most `count` entries, as far as their offsets grow from 0 on."""
    if count and (offsets[0] < 0 or not all(map(int.__lt__, offsets, offsets[1:count]))):
        count = _count_growing(offsets[:count])
    return times[:count], offsets[:count]


def _column(code: str, data: bytes, start: int) -> array[int]:
    """Returns one field of every entry, copied by byte column and not by entry, for speed."""
    column = array(code)
    size = column.itemsize
    raw = bytearray(len(data) // ENTRY_SIZE * size)
    for place in range(size):
        raw[place::size] = data[start + place :: ENTRY_SIZE]
    column.frombytes(raw)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _count_growing(offsets: Sequence[int]) -> int:
    """Returns how many offsets at the start are valid: not negative and strictly growing."""
    last = -1
    for count, offset in enumerate(offsets):
        if offset <= last:
            return count
        last = offset
    return len(offsets)
