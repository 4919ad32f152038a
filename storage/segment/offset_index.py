"""The `.index` of a segment: from an offset to a position in its `.log`, sparsely.

Apache Kafka's format: entries of eight bytes, big-endian,

    int32 relative offset   last offset of a batch, minus the segment's base offset
    int32 position          where that batch starts in the .log

An entry says that the batch at `position` ends with this offset, and that every batch before it
ends with a smaller one. Offsets and positions both grow strictly. There is about one entry for
every index.interval.bytes of log, decided batch by batch, so leader and follower agree.

Entries gather in memory, and `flush` appends them to the file. That is safe because an index can be
rebuilt from its log: a reader checks the batch that it finds, and recovery drops entries that it
cannot confirm. Files that Kafka preallocated end in zeros, which are no entries.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tidelog.storage.segment.sparse_index import SparseIndex, used_part

ENTRY_SIZE = 8
MAX_RELATIVE_OFFSET = 2**31 - 1
_ENTRY = struct.Struct(">ii")


class IndexEntry(NamedTuple):
    """A batch in the index: its last offset and its position."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """The offset index of one segment: in memory while in use, on disk when flushed."""

    __slots__ = ("_offsets", "_positions")

    entry_size = ENTRY_SIZE

    def _forget(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")

    def _keep(self, count: int) -> None:
        del self._positions[count:]
        del self._offsets[count:]

    def _packed(self, start: int, end: int) -> bytes:
        return b"".join(map(_ENTRY.pack, self._offsets[start:end], self._positions[start:end]))

    def __len__(self) -> int:
        return len(self._positions)

    def load(self, log_size: int) -> bool:
        """Reads the file; False if it is missing or is no index of a log of this size.

        A torn last entry and zeros after the entries are dropped. The index is empty on False.
        """
        self.clear()
        try:
            data = self._file.file.read()
        except FileNotFoundError:
            return False
        offsets, positions = parse(data)
        count = len(positions)
        if not _grows(offsets) or not _grows(positions):
            return False
        if count and (offsets[0] < 0 or positions[0] < 0 or positions[-1] >= log_size):
            return False
        self._offsets, self._positions = offsets, positions
        self._file.note_read(len(data), count)
        return True

    def append(self, offset: int, position: int) -> None:
        """Adds, in memory, the batch that ends with `offset` and starts at `position`."""
        # The position goes last: a reader in another thread trusts len() of the positions.
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def floor(self, offset: int) -> IndexEntry | None:
        """Returns the last entry at or before `offset`, None if there is none."""
        found = bisect_right(self._offsets, offset - self.base_offset, 0, len(self._positions)) - 1
        if found < 0:
            return None
        return IndexEntry(self.base_offset + self._offsets[found], self._positions[found])

    def after(self, offset: int) -> IndexEntry | None:
        """Returns the first entry at or after `offset`, None if there is none."""
        count = len(self._positions)
        found = bisect_left(self._offsets, offset - self.base_offset, 0, count)
        if found >= count:
            return None
        return IndexEntry(self.base_offset + self._offsets[found], self._positions[found])

    def last_before(self, position: int) -> IndexEntry | None:
        """Returns the last entry of a batch that starts at or before a position, or None."""
        found = bisect_right(self._positions, position) - 1
        if found < 0:
            return None
        return IndexEntry(self.base_offset + self._offsets[found], self._positions[found])

    def first(self) -> IndexEntry | None:
        """Returns the first entry, None if there is none."""
        return self.after(self.base_offset)

    def last(self) -> IndexEntry | None:
        """Returns the last entry, None if there is none."""
        count = len(self._positions)
        if not count:
            return None
        return IndexEntry(self.base_offset + self._offsets[count - 1], self._positions[count - 1])

    def truncate(self, log_size: int) -> None:
        """Drops the entries of batches that start at or after a position."""
        with self.flush_lock:
            self._drop_from(bisect_right(self._positions, log_size - 1))


def parse(data: bytes) -> tuple[array[int], array[int]]:
    """Returns the relative offsets and the positions in a file's bytes, unchecked.

    A torn last entry and zeros after the entries are dropped.
    """
    pairs = array("i")
    pairs.frombytes(used_part(data, ENTRY_SIZE))
    if sys.byteorder == "little":
        pairs.byteswap()
    offsets, positions = pairs[0::2], pairs[1::2]
    count = len(positions)
    while count and positions[count - 1] == 0 and offsets[count - 1] == 0:
        count -= 1
    return offsets[:count], positions[:count]


def _grows(values: array[int]) -> bool:
    return all(map(int.__lt__, values, values[1:]))
