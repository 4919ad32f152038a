"""The bytes of a `.appendtimes` file, in both versions.

    header   8 bytes, big-endian: version 2 "TIDE" and int32 2, version 1 "tide" and int32 1
    entries  16 bytes each (version 1: 12), big-endian:
             int64 append time, milliseconds; Long.MIN: unknown from here on; `END`: see below
             int32 relative offset, the first offset it holds for, minus the segment's base offset
             uint32 CRC-32C of these twelve bytes; version 1 has none

An entry says that from its offset on, until the next entry, batches were appended at its time. The
first entry is at the base offset, offsets grow strictly, and known times never decrease. There is
one entry whenever the millisecond changes: exact, and at most sixteen kilobytes a second.

The CRC begins with the CRC-32C of the base offset (int64) xor the entry's number: an entry of
another segment's file, or one in a wrong place, is as damaged as one with a wrong bit. The headers
differ in so many bytes that one damaged byte makes no file one of the other version.

An `END` comes last: all append times before its offset are in the file. The file of a closed
segment has one at the base offset of the next segment. In flush mode the active one has one, too;
in a file of version 1 only flush mode writes it.

The header has half the size of an entry. So every 32nd entry of version 2 lies in two sectors of a
disk, its time at the end of one, and a power loss may tear it there.

A new file has version 2. A file of version 1 stays one, and is appended to as it is.
"""

from __future__ import annotations

import operator
import struct
from typing import NamedTuple

from tidelog.protocol.checksum import crc32c

UNKNOWN = -(2**63)
END = UNKNOWN + 1  # the time of a last entry: what lies before its offset is in the file
VERSION = 2
HEADER_1 = b"tide" + struct.pack(">i", 1)
HEADER = b"TIDE" + struct.pack(">i", VERSION)
ENTRY = struct.Struct(">qi")  # of version 1, and of Fetch
ENTRY_SIZE = ENTRY.size
SECTOR = 512  # what a disk writes whole or not at all; larger sectors begin at multiples of it
TIME_SIZE = 8  # bytes of an entry's time, with which it begins
_PLAIN = struct.Struct(">qI")  # the next segment may begin 2**31 offsets later
_CHECKED = struct.Struct(">qII")
_CHECKSUM = struct.Struct(">12xI")
_BASE = struct.Struct(">q")


class AppendTimeEntry(NamedTuple):
    """From `offset` (relative to the base) on, batches were appended at `time` (or UNKNOWN)."""

    time: int
    offset: int


DAMAGED = AppendTimeEntry(UNKNOWN, -1)  # stands for an entry whose CRC fails


class Layout:
    """How the file of one segment stores entries."""

    __slots__ = ("_seed", "base_offset", "entry_size", "header", "is_checked")

    def __init__(self, base_offset: int, version: int = VERSION) -> None:
        """Describes a file of a version for the segment with a base offset."""
        self.base_offset = base_offset
        self.is_checked = version != 1  # entries have a CRC, and closed files an END
        self.header = HEADER if self.is_checked else HEADER_1
        self.entry_size = _CHECKED.size if self.is_checked else ENTRY_SIZE
        self._seed = crc32c(_BASE.pack(base_offset))

    def pack(self, number: int, time: int, offset: int) -> bytes:
        """Returns the bytes of the entry with this number."""
        entry = _PLAIN.pack(time, offset)
        if not self.is_checked:
            return entry
        return entry + crc32c(entry, self._seed ^ number).to_bytes(4, "big")

    def unpack(self, data: bytes) -> AppendTimeEntry:
        """Returns the time and the offset of an entry of version 2, whatever its CRC."""
        time, offset, _ = _CHECKED.unpack(data)
        return AppendTimeEntry(time, offset)

    def parse(self, data: bytes, number: int) -> list[AppendTimeEntry]:
        """Returns whole entries, the first of which has this number; DAMAGED for a damaged one."""
        if not self.is_checked:
            return [AppendTimeEntry(*entry) for entry in ENTRY.iter_unpack(data)]
        plain, seed = _plain(data), self._seed
        return [
            AppendTimeEntry(time, offset) if crc32c(entry, seed ^ at) == checksum else DAMAGED
            for at, (entry, (time, offset, checksum)) in enumerate(
                zip(plain, _CHECKED.iter_unpack(data), strict=True), number
            )
        ]

    def plain(self, data: bytes, number: int) -> bytes | None:
        """Returns whole entries as Fetch has them; None if one is damaged."""
        if not self.is_checked:
            return data
        plain = _plain(data)
        seeds = map(self._seed.__xor__, range(number, number + len(plain)))
        checksums = (checksum for (checksum,) in _CHECKSUM.iter_unpack(data))
        if all(map(operator.eq, map(crc32c, plain, seeds), checksums)):
            return b"".join(plain)
        return None


def _plain(data: bytes) -> list[bytes]:
    """Returns the first twelve bytes of each entry of version 2."""
    return [data[at : at + ENTRY_SIZE] for at in range(0, len(data), _CHECKED.size)]


def layout_of(header: bytes, base_offset: int) -> Layout | None:
    """Returns the layout that a file's first bytes name; None if it is not one of ours."""
    if header == HEADER:
        return Layout(base_offset)
    return Layout(base_offset, 1) if header == HEADER_1 else None
