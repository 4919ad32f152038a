"""The `.appendtimes` of a segment: when each of its batches was appended. Data, not an index.

    header   8 bytes: "tide", then int32 version (1), big-endian
    entries  12 bytes each, big-endian:
             int64 append time, milliseconds; Long.MIN: unknown from here on
             int32 relative offset, the first offset it holds for, minus the segment's base offset

An entry says: from this offset on batches were appended at this time, until the next entry.
The first entry is at the base, offsets grow strictly, known times never go back, and there is one
entry whenever the millisecond changes, so at most twelve kilobytes a second, and exact.

An entry is written before the batch it describes and is cut with the log, so a crash leaves at most
one entry too many, at the log's end, and recovery cuts that off. It can never be rebuilt.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from storage import files, timestamps

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"tide"
VERSION = 1
UNKNOWN = -(2**63)
HEADER = MAGIC + struct.pack(">i", VERSION)
ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qi")


class AppendTimes:
    """One segment's append times: read when first asked for, written through at once."""

    __slots__ = ("_descriptor", "_offsets", "_times", "base_offset", "path")

    def __init__(self, path: Path, base_offset: int) -> None:
        """Describe the file; nothing is read before `load`."""
        self.path = path
        self.base_offset = base_offset
        self._offsets = array("i")  # relative
        self._times = array("q")
        self._descriptor: files.Descriptor | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    def load(self) -> bool:
        """Read the file; False when it is missing or is not one of ours, and nothing is known.

        A torn last entry is dropped. From the first entry that cannot be, nothing is known.
        """
        self._offsets, self._times = array("i"), array("q")
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return False
        if not data.startswith(HEADER):
            return False
        end = len(data) - (len(data) - len(HEADER)) % ENTRY_SIZE
        for time, offset in _ENTRY.iter_unpack(data[len(HEADER) : end]):
            if not self._may_follow(time, offset):
                if self._offsets:
                    self._offsets.append(self._offsets[-1] + 1)
                    self._times.append(UNKNOWN)
                    self._write_anew()
                break
            self._offsets.append(offset)
            self._times.append(time)
        return bool(self._offsets)

    @property
    def last_time(self) -> int | None:
        """The last known append time of the segment, None when it knows none."""
        return next((time for time in reversed(self._times) if time != UNKNOWN), None)

    @property
    def is_complete(self) -> bool:
        """Whether the append time of every batch is known: the segment was written by us."""
        return bool(self._times) and UNKNOWN not in self._times

    def at(self, offset: int) -> int | None:
        """Return when the batch with this offset was appended, None when that is unknown."""
        found = bisect_right(self._offsets, offset - self.base_offset) - 1
        if found < 0 or self._times[found] == UNKNOWN:
            return None
        return self._times[found]

    def append(self, append_time_ms: int, offset: int) -> None:
        """Say that batches from `offset` on are appended at this time, if that is news.

        Raises OSError, and then nothing is changed: what may have reached the file lies behind the
        entries and is overwritten by the next one.
        """
        if self._times and self._times[-1] == append_time_ms:
            return
        relative_offset = offset - self.base_offset
        entry = _ENTRY.pack(append_time_ms, relative_offset)
        count = len(self._offsets)
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = files.Descriptor(self.path, writable=True)
        if count == 0:
            files.write_at(descriptor, (HEADER, entry), 0, len(HEADER) + ENTRY_SIZE)
        else:
            position = len(HEADER) + count * ENTRY_SIZE
            files.write_at(descriptor, (entry,), position, ENTRY_SIZE)
        self._times.append(append_time_ms)
        self._offsets.append(relative_offset)

    def truncate(self, end_offset: int) -> None:
        """Forget the times of offsets from `end_offset` on, here and in the file. Raises OSError.

        Also cuts off what lies behind the last whole entry, so that the file is well formed.
        """
        count = bisect_left(self._offsets, end_offset - self.base_offset)
        del self._offsets[count:]
        del self._times[count:]
        size = len(HEADER) + count * ENTRY_SIZE if count else 0
        try:
            if self.path.stat().st_size > size:
                os.truncate(self.path, size)
        except FileNotFoundError:
            pass

    def mark_unknown(self) -> None:
        """Say that nothing is known of the whole segment: somebody else wrote it. Raises OSError."""
        self._offsets, self._times = array("i", [0]), array("q", [UNKNOWN])
        self._write_anew()

    def close(self) -> None:
        """Let go of the file; what was read stays."""
        self._descriptor = None

    def _may_follow(self, time: int, offset: int) -> bool:
        if not self._offsets:
            return offset == 0
        last = self.last_time
        goes_back = time != UNKNOWN and last is not None and timestamps.goes_back(last, time)
        return offset > self._offsets[-1] and not goes_back

    def _write_anew(self) -> None:
        self._descriptor = None
        entries = map(_ENTRY.pack, self._times, self._offsets)
        files.replace(self.path, b"".join((HEADER, *entries)), durable=False)
