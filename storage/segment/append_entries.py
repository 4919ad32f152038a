"""The entries of a `.appendtimes` file: their layout, and how one is found.

    header   8 bytes: "tide", then int32 version (1), big-endian
    entries  12 bytes each, big-endian:
             int64 append time, milliseconds; Long.MIN: unknown from here on
             int32 relative offset, the first offset it holds for, minus the segment's base offset

An entry says that from its offset on, until the next entry, batches were appended at its time. The
first entry is at the base offset, offsets grow strictly, and known times never decrease. There is
one entry whenever the millisecond changes: exact, and at most twelve kilobytes a second.

In flush mode the last entry may have the time `END`: all append times before its offset are known
and durable. The functions take a descriptor and the number of valid entries; they raise OSError if
the file has fewer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from storage import files
from storage.time.append_time import goes_back
from storage.time.lookup import reaches

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"tide"
VERSION = 1
UNKNOWN = -(2**63)
END = UNKNOWN + 1  # the time of a last entry: what lies before its offset is durable
HEADER = MAGIC + struct.pack(">i", VERSION)
ENTRY_SIZE = 12
ENTRY = struct.Struct(">qi")
_UNKNOWN_BYTES = struct.pack(">q", UNKNOWN)
_BLOCK_ENTRIES = 4096  # how many entries are read at once where many are looked at


class Entry(NamedTuple):
    """From `offset` (relative to the base) on, batches were appended at `time` (or UNKNOWN)."""

    time: int
    offset: int


def read(descriptor: files.Descriptor, number: int, count: int) -> bytes:
    """Returns the bytes of `count` entries, from entry `number` on."""
    data = files.read_at(descriptor, count * ENTRY_SIZE, len(HEADER) + number * ENTRY_SIZE)
    if len(data) != count * ENTRY_SIZE:
        raise OSError(5, "append times were cut short by somebody else")
    return data


def at(descriptor: files.Descriptor, number: int) -> Entry:
    """Returns the entry of this number."""
    return Entry(*ENTRY.unpack(read(descriptor, number, 1)))


def _block(descriptor: files.Descriptor, number: int, count: int) -> list[Entry]:
    """Returns a block of entries from `number` on, of `count` that the file has."""
    data = read(descriptor, number, min(_BLOCK_ENTRIES, count - number))
    return [Entry(*entry) for entry in ENTRY.iter_unpack(data)]


def walk(descriptor: files.Descriptor, first: int, count: int) -> Iterator[Entry]:
    """Iterates over the entries from `first` on, of `count` that the file has."""
    for number in range(first, count, _BLOCK_ENTRIES):
        yield from _block(descriptor, number, count)


def backwards(descriptor: files.Descriptor, count: int) -> Iterator[Entry]:
    """Iterates over the first `count` entries, the last one first."""
    for number in reversed(range(0, count, _BLOCK_ENTRIES)):
        yield from reversed(_block(descriptor, number, count))


def floor(descriptor: files.Descriptor, relative_offset: int, count: int) -> int:
    """Returns the number of the entry that holds for an offset, -1 if there is none.

    Searches `count` entries, up to the first gap or END entry that a power loss has left among
    them.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        time, offset = at(descriptor, middle)
        is_entry = time != END and (offset > 0 or not middle)
        if is_entry and offset <= relative_offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


def first_reaching(descriptor: files.Descriptor, count: int, append_time_ms: int) -> int:
    """Returns the first of `count` entries with a known time at or after another time.

    Returns `count` if there is none. Known times never decrease, so this is a binary search that
    skips unknown entries.
    """
    low, high = 0, count
    while low < high:
        middle = number = (low + high) // 2
        entry = at(descriptor, number)
        while entry.time == UNKNOWN and number > low:
            number -= 1
            entry = at(descriptor, number)
        if entry.time != UNKNOWN and reaches(entry.time, append_time_ms):
            high = number
        else:
            low = middle + 1
    return high


def unknown_before(descriptor: files.Descriptor, number: int) -> Entry | None:
    """Returns the first of the unknown entries just before an entry; None if that one is known."""
    unknown: Entry | None = None
    for before in reversed(range(number)):
        entry = at(descriptor, before)
        if entry.time != UNKNOWN:
            break
        unknown = entry
    return unknown


def before_zeros(descriptor: files.Descriptor, count: int) -> int:
    """Returns how many of `count` entries precede trailing zeros.

    Only the first entry of a file has offset 0.
    """
    if count < 2 or at(descriptor, count - 1).offset > 0:
        return count
    low, high = 1, count - 1
    while low < high:
        middle = (low + high) // 2
        if at(descriptor, middle).offset > 0:
            low = middle + 1
        else:
            high = middle
    return low


def growing(descriptor: files.Descriptor, count: int) -> int:
    """Returns how many of `count` entries come before an END or an offset that does not grow."""
    last = -1
    for number in range(0, count, _BLOCK_ENTRIES):
        block = _block(descriptor, number, count)
        offsets = [last, *(entry.offset for entry in block)]
        if all(map(int.__lt__, offsets, offsets[1:])) and END not in (e.time for e in block):
            last = offsets[-1]
            continue
        for place, entry in enumerate(block, number):
            if entry.offset <= last or entry.time == END:
                return place
            last = entry.offset
    return count


def known_from(descriptor: files.Descriptor, count: int) -> int | None:
    """Returns the offset from which on all times of `count` entries are known.

    None if the last one is unknown.
    """
    offset: int | None = None
    for entry in backwards(descriptor, count):
        if entry.time == UNKNOWN:
            break
        offset = entry.offset
    return offset


def has_unknown(descriptor: files.Descriptor, count: int) -> bool:
    """Returns whether the append time of one of `count` entries is unknown."""
    for number in range(0, count, _BLOCK_ENTRIES):
        data = read(descriptor, number, min(_BLOCK_ENTRIES, count - number))
        found = data.find(_UNKNOWN_BYTES)
        while found >= 0:
            if found % ENTRY_SIZE == 0:
                return True
            found = data.find(_UNKNOWN_BYTES, found + 1)
    return False


def may_follow(entry: Entry, last: Entry, last_known: int | None, *, is_first: bool) -> bool:
    """Returns whether an entry can be next: its offset grows, its time does not decrease."""
    if is_first:
        return entry.offset == 0
    if entry.time != UNKNOWN and last_known is not None and goes_back(last_known, entry.time):
        return False
    return entry.offset > last.offset
