"""The entries of a `.appendtimes` file: how one is found, and what a damaged one makes unknown.

`layout` has the bytes. A damaged entry may have had any offset between those of its neighbours, so
append times there are unknown: from behind the offset of the entry before it to that of the entry after
it. No time is read from it, and a search goes by its neighbours. The first damaged entry of a file
that is met is logged.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import files
from tidelog.storage.segment.appended.layout import (
    DAMAGED,
    END,
    ENTRY,
    HEADER,
    SECTOR,
    TIME_SIZE,
    UNKNOWN,
    AppendTimeEntry,
    Layout,
    layout_of,
)
from tidelog.storage.time.lookup import reaches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.storage.segment.append_times import AppendTimes
    from tidelog.storage.segment.named_file import NamedFile

_log = logging.getLogger("tidelog.storage")

_BLOCK_ENTRIES = 4096  # how many entries are read at once where many are looked at


class Reached(NamedTuple):
    """Where the append times of a segment reach a given time, in offsets of the log.

    Batches appended at that time or later begin at `offset`. They may begin earlier, from
    `unknown_from` on, where append times are unknown.
    """

    offset: int | None  # of the first known entry at or after the time; None: there is none
    unknown_from: int | None  # None: everything before `offset` is known to be earlier


class Contents(NamedTuple):
    """What a file has. Offsets are relative to the segment's base."""

    size: int  # the number of entries, END and damaged ones at the end left out
    end: int | None  # the offset of the END entry behind them
    lost_from: int | None  # from where on damaged entries at the end leave all unknown


class TornEnd(NamedTuple):
    """An END entry with an entry written over one half of it."""

    offset: int  # relative to the segment's base
    is_sure: bool  # its CRC is there; else the offset is that of the entry written over it


class Entries(NamedTuple):
    """The first `size` entries of an open file; methods raise OSError if it has fewer.

    Offsets are relative to the segment's base, and entries are counted from 0.
    """

    descriptor: files.Descriptor
    layout: Layout
    size: int
    file: NamedFile
    lost_from: int | None = None  # behind the entries others are missing, from this offset on

    # --- reading ----------------------------------------------------------------------------------

    def read(self, number: int, count: int) -> bytes:
        """Returns the bytes of entries, from entry `number` on."""
        entry_size = self.layout.entry_size
        data = files.read_at(self.descriptor, count * entry_size, len(HEADER) + number * entry_size)
        if len(data) != count * entry_size:
            raise OSError(5, "append times were cut short by somebody else")
        return data

    def parsed(self, number: int, count: int) -> list[AppendTimeEntry]:
        """Returns entries from entry `number` on, DAMAGED in place of a damaged one."""
        entries = self.layout.parse(self.read(number, count), number)
        if DAMAGED in entries and not self.file.is_damage_logged:
            self.file.is_damage_logged = True  # the search reads the damaged entry again
            before = self.whole(number + entries.index(DAMAGED))[1]
            self.file.is_damage_logged = False
            self.report(before.offset + 1)
        return entries

    def report(self, relative_offset: int) -> None:
        """Logs, once for each file, from where on it does not have what it should."""
        if not self.file.is_damage_logged:
            self.file.is_damage_logged = True
            offset = self.layout.base_offset + relative_offset
            _log.warning("append times damaged", extra={"file": self.file.path, "from": offset})

    def at(self, number: int) -> AppendTimeEntry:
        """Returns an entry, DAMAGED if its checksum fails."""
        (entry,) = self.layout.parse(self.read(number, 1), number)
        return self.parsed(number, 1)[0] if entry is DAMAGED else entry

    def walk(self, first: int = 0) -> Iterator[AppendTimeEntry]:
        """Iterates over the entries from number `first` on, DAMAGED ones too."""
        for number in range(first, self.size, _BLOCK_ENTRIES):
            yield from self.parsed(number, min(_BLOCK_ENTRIES, self.size - number))

    def backwards(self, count: int, block: int = 8) -> Iterator[AppendTimeEntry]:
        """Iterates over the first `count` entries, the last one first, DAMAGED ones too."""
        while count:
            number = max(count - block, 0)
            yield from reversed(self.parsed(number, count - number))
            count, block = number, min(8 * block, _BLOCK_ENTRIES)

    def held_before(self, number: int) -> Iterator[AppendTimeEntry]:
        """Iterates over the entries before a number, the last one first, UNKNOWN for damaged ones."""
        is_damaged = False
        for entry in self.backwards(number):
            if entry is DAMAGED:
                is_damaged = True
                continue
            if is_damaged:
                yield AppendTimeEntry(UNKNOWN, entry.offset + 1)
            yield entry
            is_damaged = False
        if is_damaged:
            yield AppendTimeEntry(UNKNOWN, 0)

    # --- searching --------------------------------------------------------------------------------

    def whole(self, number: int) -> tuple[int, AppendTimeEntry]:
        """Returns the last entry at a number or before it that is not damaged; (-1, DAMAGED): none."""
        for entry in self.backwards(number + 1, block=1):
            if entry is not DAMAGED:
                return number, entry
            number -= 1
        return -1, DAMAGED

    def floor(self, relative_offset: int) -> int:
        """Returns the number of the last whole entry at or before an offset, -1 if there is none.

        Searches up to the first gap or END entry that a power loss has left among the entries.
        """
        return self.whole(self._place(relative_offset))[0]

    def _place(self, relative_offset: int) -> int:
        """Returns the number of the last entry at or before an offset, whether it is damaged or not."""

        def is_behind(number: int) -> bool:
            entry = self.at(number)
            if entry is DAMAGED:
                number, entry = self.whole(number)
            time, offset = entry
            return offset > relative_offset or time == END or offset <= 0 < number

        return bisect_left(range(self.size), True, key=is_behind) - 1

    def time_at(self, relative_offset: int) -> int | None:
        """Returns the append time of the batch with an offset, None if it is unknown."""
        number = self._place(relative_offset)
        if number < 0:
            return None
        entry, *following = self.parsed(number, min(2, self.size - number))
        if entry is DAMAGED:
            entry, following = self.whole(number)[1], [DAMAGED]
        if entry.time == UNKNOWN or (DAMAGED in following and relative_offset > entry.offset):
            return None
        return entry.time

    def known_time(self, number: int) -> int | None:
        """Returns the last known time at a number or before it, None if none is known."""
        found = (entry.time for entry in self.backwards(number + 1))
        return next((time for time in found if time != UNKNOWN), None)

    def reached(self, append_time_ms: int, last_known: int | None) -> Reached:
        """Finds the first batches appended at a time or later; `last_known` is the last known time."""

        def is_reached(number: int) -> bool:
            time = self.at(number).time
            return reaches(self.known_time(number) if time == UNKNOWN else time, append_time_ms)

        base_offset, number = self.layout.base_offset, self.size
        if reaches(last_known, append_time_ms):  # known times never decrease
            number = bisect_left(range(self.size), True, key=is_reached)
        unknown = self.unknown_before(number)
        if unknown is None and number == self.size:
            unknown = self.lost_from
        return Reached(
            None if number == self.size else self.at(number).offset + base_offset,
            None if unknown is None else unknown + base_offset,
        )

    def unknown_before(self, number: int) -> int | None:
        """Returns from which offset on times just before an entry are unknown; None if they are not."""
        offset = None
        for entry in self.held_before(number):
            if entry.time != UNKNOWN:
                break
            offset = entry.offset
        return offset

    def known_from(self) -> int | None:
        """Returns the offset from which on all times are known; None if the last one is not."""
        offset = None
        for entry in self.held_before(self.size):
            if entry.time == UNKNOWN:
                break
            offset = entry.offset
        return offset

    def has_unknown(self) -> bool:
        """Returns whether the append time of an entry is unknown, or an entry is damaged."""
        for number in range(0, self.size, _BLOCK_ENTRIES):
            count = min(_BLOCK_ENTRIES, self.size - number)
            plain = self.layout.plain(self.read(number, count), number)
            if plain is None:
                self.parsed(number, count)  # logs it
                return True
            if any(time == UNKNOWN for time, _ in ENTRY.iter_unpack(plain)):
                return True
        return False

    # --- for others -------------------------------------------------------------------------------

    def between(self, first_offset: int, last_offset: int) -> bytes:
        """Returns the entries that hold for a range of offsets, as Fetch has them.

        The first one may begin before the range; UNKNOWN ones stand for damaged ones.
        """
        first = max(self.floor(first_offset), 0)
        end = max(self.floor(last_offset), first - 1) + 1
        count = min(end + 1, self.size) - first
        plain = self.layout.plain(self.read(first, count), first) if count > 0 else b""
        if plain is None:
            held = known_parts(self.parsed(first, count), first)
            plain = b"".join(ENTRY.pack(*entry) for entry in held if entry.offset <= last_offset)
        else:
            plain = plain[: (end - first) * ENTRY.size]
        if self.lost_from is not None and self.lost_from <= last_offset:
            plain += ENTRY.pack(UNKNOWN, self.lost_from)
        return plain

    def known(self, relative_offset: int) -> Iterator[AppendTimeEntry]:
        """Yields the entries from that on which holds for an offset, or from the first one on.

        UNKNOWN ones stand for those that are damaged or missing.
        """
        first = max(self.floor(relative_offset), 0) if relative_offset > 0 else 0
        for entry in known_parts(self.walk(first), first):
            if self.lost_from is None or entry.offset < self.lost_from:
                yield entry
        if self.lost_from is not None:
            yield AppendTimeEntry(UNKNOWN, self.lost_from)

    # --- the end of the file ----------------------------------------------------------------------

    def contents(self) -> Contents:
        """Returns what the file has, by its end; the entries themselves are believed."""
        layout, size = self.layout, 0
        if layout.is_checked:
            size = self.whole(self.size - 1)[0] + 1
        elif self.size and self.at(0).offset == 0:  # that of no other entry: zeros may follow
            size = self.size
            if self.at(size - 1).offset <= 0:
                others = range(1, size)
                size = 1 + bisect_left(others, True, key=lambda number: self.at(number).offset <= 0)
        if not size:
            return Contents(0, None, None)
        last, has_lost = self.at(size - 1), layout.is_checked and size < self.size
        if last.time == END:
            return Contents(size - 1, last.offset, last.offset if has_lost else None)
        torn = self.torn_end(size) if has_lost else None
        if torn is not None and torn.is_sure:
            return Contents(size, torn.offset, torn.offset)
        return Contents(size, None, last.offset + 1 if has_lost else None)

    def ends_with(self, end: int) -> bool:
        """Returns whether an END entry with an offset is in the file behind these entries."""
        wanted = self.layout.pack(self.size, END, end)
        position = len(HEADER) + self.size * len(wanted)
        return files.read_at(self.descriptor, len(wanted), position) == wanted

    def torn_end(self, number: int) -> TornEnd | None:
        """Returns what is left of an END entry in place of a damaged one, None if there is nothing.

        Such an entry lies in two sectors, and a power loss has brought back one of them.
        """
        if (len(HEADER) + number * self.layout.entry_size) % SECTOR != SECTOR - TIME_SIZE:
            return None
        data = self.read(number, 1)
        time, offset = self.layout.unpack(data)
        if data[TIME_SIZE:] == self.layout.pack(number, END, offset)[TIME_SIZE:]:
            return TornEnd(offset, is_sure=True)
        return TornEnd(offset, is_sure=False) if time == END else None

    def growing(self) -> int:
        """Returns how many entries come before an END or an offset that does not grow."""
        last = -1
        for number, entry in enumerate(self.walk()):
            if entry is not DAMAGED:
                if entry.offset <= last or entry.time == END:
                    return number
                last = entry.offset
        return self.size


def known_parts(entries: Iterable[AppendTimeEntry], first: int = 0) -> Iterator[AppendTimeEntry]:
    """Yields entries with UNKNOWN ones for damaged ones, where these leave anything unknown.

    `first` is the number of the first of them: before entry 0 nothing can be known.
    """
    behind, unknown = -1, None
    for entry in entries:
        if entry is DAMAGED:
            if unknown is None and (behind >= 0 or not first):
                unknown = behind + 1
            continue
        if unknown is not None and unknown < entry.offset:
            yield AppendTimeEntry(UNKNOWN, unknown)
        yield entry
        behind, unknown = entry.offset, None
    if unknown is not None:
        yield AppendTimeEntry(UNKNOWN, unknown)


def opened(file: NamedFile, base_offset: int) -> Entries | None:
    """Opens the file of a segment; None if it is missing or not ours. Raises OSError."""
    try:
        descriptor = file.open()
    except FileNotFoundError:
        return None
    layout = layout_of(files.read_at(descriptor, len(HEADER), 0), base_offset)
    if layout is None:
        return None
    size = (descriptor.size() - len(HEADER)) // layout.entry_size
    return Entries(descriptor, layout, size, file)


class Cursor:
    """Walks over the append times of one segment, in blocks; offsets must grow from call to call."""

    def __init__(self, append_times: AppendTimes) -> None:
        """Begins at the first offset asked for; nothing is read before.

        Batches that are appended after that may get the time of those before them.
        """
        self._append_times, self._base_offset = append_times, append_times.base_offset
        self._entries: Iterator[AppendTimeEntry] | None = None
        self._entry: AppendTimeEntry | None = None
        self._next: AppendTimeEntry | None = None

    def at(self, offset: int) -> int | None:
        """Returns the append time of the batch with this offset, None if unknown; raises OSError."""
        relative_offset = offset - self._base_offset
        if self._entries is None:
            self._entries = _before_left(self._append_times.entries(offset))
            self._next = next(self._entries, None)
        while self._next is not None and self._next.offset <= relative_offset:
            self._entry, self._next = self._next, next(self._entries, None)
        entry = self._entry
        return None if entry is None or entry.time == UNKNOWN else entry.time


def _before_left(entries: Iterator[AppendTimeEntry]) -> Iterator[AppendTimeEntry]:
    """Yields entries up to what a power loss has left among them."""
    last = -1
    for entry in entries:
        if entry.time == END or entry.offset <= last:
            return
        yield entry
        last = entry.offset
