"""The `.timeindex` of a segment: from a time to the batch that first reached it, sparsely (KIP-33).

Apache Kafka's format: entries of twelve bytes, big-endian,

    int64 timestamp         the largest record time of the segment so far; never negative
    int32 relative offset   last offset of the batch that first reached it (of an uncompressed
                            message of format 0 or 1: its own), minus the segment's base offset

Both grow strictly. This index gets an entry with every entry of the offset index, if the largest
time has grown since the last one, and one more when the segment is rolled or closed. So for two
neighbours (t, o) and (u, p), a time above t and up to u is first reached by a batch that ends at p
or before, and after the last entry of the offset index that lies before p. A reader scans no more
than that.

Entries gather in memory and `flush` writes them, after the offset index's. The index can be rebuilt
from the log, which is done if it is missing or shorter than it was. Kafka preallocates the file:
the first time that does not grow, such as a zero, ends the entries.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from storage.segment.sparse_index import SparseIndex, used_part
from storage.time.lookup import count_growing, is_indexed

if TYPE_CHECKING:
    from collections.abc import Sequence

ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qi")


class TimeEntry(NamedTuple):
    """The largest time so far, and the last offset of the batch that first reached it."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """The time index of one segment: in memory while in use, on disk when flushed."""

    __slots__ = ("_offsets", "_times")

    entry_size = ENTRY_SIZE

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

    def load(self) -> bool:
        """Reads the file; False, with an empty index, if it is missing. Raises OSError.

        A torn last entry is dropped, and everything from the first entry on that does not grow.
        """
        self.clear()
        try:
            data = self.file.read()
        except FileNotFoundError:
            return False
        part = used_part(data, ENTRY_SIZE)
        times = _column("q", part, 0)
        offsets = _column("i", part, 8)
        count = count_growing(times)
        if count and not times[0] and not offsets[0]:
            count = 0  # zeros; if this was an entry after all, it is rebuilt from the log
        if count and (offsets[0] < 0 or not all(map(int.__lt__, offsets, offsets[1:count]))):
            count = _count_growing(offsets[:count])
        self._times, self._offsets = times[:count], offsets[:count]
        self._read_from(len(data), count)
        return True

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
            self._drop_from(bisect_left(self._offsets, end_offset - self.base_offset))


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
