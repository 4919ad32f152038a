"""The append time of each batch of a segment. Data, not an index; `appended` has the format.

An entry is written before the batch it describes and is truncated with the log. The file can never be
rebuilt. Memory holds the number of entries, the last one, and a few before it, because followers that
keep up ask for these. What of the file is known (`appended/checks.py` decides it):

| the file has | known are the times |
|---|---|
| an entry whose CRC fails, or an UNKNOWN one | not from behind the entry before it to the entry after it |
| END at the end of a closed segment | before it: all |
| END before the end of a closed segment | before END; nothing was appended since: none, another's file |
| ... and entries that were durable | before what was durable; all if the last entry is the last batch's |
| no END in a closed segment's file | up to the last entry; all if that has the last batch's time |
| an entry at the end of a closed segment | none: it is another segment's file |
| a first entry that is not the first batch's | none: it is another segment's file |
| a last entry earlier than the last batch | up to it: later entries are lost |
| a last entry later than the last batch | up to the one before: a crash has removed its batch |
| after a crash, an impossible entry | before it, and before what was durable |
| after a power loss, END torn or overwritten | before that END |

Impossible are an offset that does not grow, a time that goes back, and END among the entries. In flush mode
each append writes END behind its entry and moves it behind the batch, so that times are known after a
power loss.
END among the entries cannot claim too much: sectors before it that were not written hold damaged entries
or an older END.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage import files
from tidelog.storage.segment.appended import checks
from tidelog.storage.segment.appended.entries import Entries, Reached, opened
from tidelog.storage.segment.appended.layout import (
    DAMAGED,
    END,
    ENTRY,
    HEADER,
    UNKNOWN,
    AppendTimeEntry,
    Layout,
)
from tidelog.storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOST_POWER = checks.Stop()
_RECENT = 8  # entries in memory


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
        "_is_torn",
        "_is_whole",
        "_last",
        "_last_known",
        "_layout",
        "_lost_from",
        "_recent",
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
        self._layout = Layout(self.base_offset)
        self._count = 0
        self._end: int | None = None  # the offset of the END entry
        self._lost_from: int | None = None  # entries are missing from this offset on
        self._is_whole = False  # of a closed segment, and with its END
        self._is_durable = False
        self._is_torn = False  # a write has failed, and may have left a part over the END
        self._last = AppendTimeEntry(UNKNOWN, -1)
        self._recent: tuple[AppendTimeEntry, ...] = ()  # the last entries, as they were appended
        self._last_known: int | None = None
        self._complete: bool | None = False  # None: not known yet

    @property
    def path(self) -> Path:
        """Where the file is now."""
        return self.file.path

    def __len__(self) -> int:
        return self._count

    def load(self) -> bool:
        """Reads the file's end; False if the file is missing or not ours. Raises OSError.

        A torn last entry is dropped, and so are zeros at the end of version 1. The entries are believed.
        """
        self._forget()
        self._descriptor = None
        entries = opened(self.file, self.base_offset)
        if entries is None:
            return False
        self._layout = entries.layout
        size, end, lost_from = entries.contents()
        self._shorten(entries, size)
        if size:
            self._end = end
            self._lose(lost_from)
        return bool(size)

    def _shorten(self, entries: Entries, count: int) -> None:
        """Uses only the first `count` entries; readers in other threads can always read these."""
        if count <= 0:
            self._forget()
            return
        entries = entries._replace(size=count)
        self._last, self._count, self._recent = next(entries.held_before(count)), count, ()
        self._last_known, self._complete = entries.known_time(count - 1), None
        self._end, self._lost_from, self._is_durable = None, None, False

    def _lose(self, relative_offset: int | None) -> None:
        """Treats all append times from an offset on as unknown; does not change the file."""
        if relative_offset is not None:
            self._lost_from, self._complete, self._recent = relative_offset, False, ()
            self._last = AppendTimeEntry(UNKNOWN, relative_offset)
            self._last_known = self._last_known if relative_offset else None

    def close_at(
        self, end_offset: int, last_time: int | None = None, durable_offset: int = 0
    ) -> None:
        """Takes as unknown what a closed segment's file lacks; see `checks.closed`. Raises OSError."""
        if self._count and self._layout.is_checked:
            entries, end = self._entries(), self._end
            self._shorten(entries, self._count)
            self._end = end
            limit, durable = end_offset - self.base_offset, durable_offset - self.base_offset
            self._lose(checks.closed(entries, end, limit, last_time, durable))
            self._is_whole = end is not None and self._lost_from is None

    def settle(self) -> None:
        """Writes into the file what is lost at its end. Raises OSError."""
        lost = (
            None
            if self._lost_from is None
            else checks.KeptTimes(self._count, self._lost_from, None)
        )
        self._keep(checks.NOTHING if self._lost_from == 0 else lost)

    def check(
        self, from_offset: int, time_before: int | None = None, stop: checks.Stop = _LOST_POWER
    ) -> bool:
        """Keeps what `checks.check` says; False when something had to be forgotten. Raises OSError."""
        if not self._count:
            return True
        durable = from_offset - self.base_offset
        return self._keep(checks.check(self._entries(), durable, self._end, time_before, stop))

    def confirm(
        self, first_time: int | None, last_time: int | None, durable_offset: int | None = None
    ) -> bool:
        """Keeps what `checks.confirm` says; False when something had to be forgotten. Raises OSError."""
        if not self._count:
            return True
        vouched = self._end or 0
        if durable_offset is not None:
            vouched = max(durable_offset - self.base_offset, vouched)
        times, whole = (first_time, last_time), self._is_whole
        return self._keep(
            checks.confirm(self._entries(), self._last, self._end, times, vouched, is_whole=whole)
        )

    def _keep(self, kept: checks.KeptTimes | None) -> bool:
        """Keeps a part of the file; returns whether it was all of it (None)."""
        if kept is None:
            return True
        if kept is checks.NOTHING:
            self.mark_unknown()
            return False
        size, unknown_from, end = kept
        self._shorten(self._entries(), size)
        self._end = end if size else None  # kept in the file: the next crash may come at once
        self._cut_file()
        if size:
            self.append(UNKNOWN, unknown_from + self.base_offset)
        return False

    @property
    def has_lost(self) -> bool:
        """Whether entries are missing at the file's end."""
        return self._lost_from is not None

    @property
    def has_end(self) -> bool:
        """Whether appends keep an END entry at the file's end."""
        return self._end is not None

    def restore_end(self, end_offset: int, durable_offset: int) -> bool:
        """Writes the END entry of a closed segment again if a power loss has taken only that.

        Returns whether it had to be written. Raises OSError.
        """
        is_durable, end = end_offset <= durable_offset, self._end
        has_older = end is not None and end < end_offset - self.base_offset
        return (is_durable or has_older) and self.finish(end_offset)

    @property
    def end_offset(self) -> int:
        """Append times before this offset are durable, as the file's END entry says."""
        return self.base_offset + (self._end or 0)

    @property
    def last_time(self) -> int | None:
        """The last known append time of the segment, None if none is known."""
        return self._last_known

    @property
    def is_complete(self) -> bool:
        """Whether the append time of every batch is known: no other program wrote any."""
        complete = self._complete
        if complete is None:
            complete = self._complete = not self._entries().has_unknown()
        return complete

    def unknown_end(self, end_offset: int) -> int:
        """Returns the offset from which on all append times are known; raises OSError.

        The segment ends at `end_offset`. It is that if the last append time is unknown.
        """
        if not self._count or self._last.time == UNKNOWN:
            return end_offset
        known = self._entries().known_from()
        return end_offset if known is None else known + self.base_offset

    def at(self, offset: int) -> int | None:
        """Returns the append time of the batch with an offset, None if unknown; raises OSError."""
        relative_offset, last = offset - self.base_offset, self._last
        if relative_offset >= last.offset >= 0:
            return None if last.time == UNKNOWN else last.time
        if relative_offset < 0 or not self._count:
            return None
        return self._entries().time_at(relative_offset)

    def entries_between(self, first_offset: int, last_offset: int) -> bytes:
        """Returns the entries that hold for a range of offsets, as Fetch has them; raises OSError.

        The first may begin before the range. Before it append times are unknown.
        """
        last_entry = self._last
        if not self._count:
            return b""
        first_offset, last_offset = first_offset - self.base_offset, last_offset - self.base_offset
        if first_offset >= last_entry.offset >= 0:
            return ENTRY.pack(*last_entry)
        recent = self._recent
        if recent and recent[0].offset <= first_offset and self._lost_from is None:
            held = [entry for entry in recent if entry.offset <= last_offset]
            while len(held) > 1 and held[1].offset <= first_offset:
                del held[0]
            return b"".join(ENTRY.pack(*entry) for entry in held)
        return self._entries().between(first_offset, last_offset)

    @property
    def first_known_time(self) -> int | None:
        """The first append time that is known, None if none is. Raises OSError."""
        return next((entry.time for entry in self.entries() if entry.time != UNKNOWN), None)

    def first_reaching(self, append_time_ms: int) -> Reached:
        """Returns where the first batches begin that were appended at a time or later. Raises OSError."""
        if not self._count:
            return Reached(None, self.base_offset)
        return self._entries().reached(append_time_ms, self._last_known)

    def append(self, append_time_ms: int, offset: int) -> None:
        """Notes that batches from `offset` on are appended at this time, if it is a new one.

        Raises OSError, and then `truncate` repairs what a part of the entry has overwritten.
        """
        count = self._count
        if append_time_ms == self._last[0] and count:
            return
        relative_offset = offset - self.base_offset
        layout, has_end = self._layout, self._end is not None
        entry = layout.pack(count, append_time_ms, relative_offset)
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = self.file.open(writable=True)
        if count == 0:
            files.write_at(descriptor, (layout.header, entry), 0, len(HEADER) + len(entry))
            self._complete = append_time_ms != UNKNOWN
        else:
            if has_end:
                entry += layout.pack(count + 1, END, relative_offset)
            self._is_torn = has_end
            position = len(HEADER) + count * layout.entry_size
            files.write_at(descriptor, (entry,), position, len(entry))
            self._end, self._is_torn = relative_offset if has_end else None, False
        if append_time_ms == UNKNOWN:
            self._complete = False
        else:
            self._last_known = append_time_ms
        self._last = last = AppendTimeEntry(append_time_ms, relative_offset)
        self._count = count + 1
        self._recent = (*self._recent[1 - _RECENT :], last)
        self._is_durable = False

    def mark_end(self, end_offset: int) -> None:
        """Writes an END entry, which appends keep at the end; not to be called during an append.

        Raises OSError, and then `truncate` repairs the one before.
        """
        relative_offset = end_offset - self.base_offset
        if self._count and (relative_offset != self._end or self._is_torn):
            self._end = self._write_end(relative_offset)

    def finish(self, end_offset: int) -> bool:
        """Writes the END entry of a closed segment, which the next append would overwrite.

        Returns whether there was anything to write. Raises OSError.
        """
        relative_offset = end_offset - self.base_offset
        if not self._layout.is_checked or not self._count or self._lost_from is not None:
            return False  # it must not vouch for what is lost
        if self._end == relative_offset or self._entries().ends_with(relative_offset):
            return False
        self._write_end(relative_offset)
        return True

    def let_go_of_end(self) -> None:
        """Lets the next append overwrite the END entry: what it covers is known to be durable."""
        if self._layout.is_checked:
            self._end = None

    def _write_end(self, relative_offset: int) -> int:
        if self._descriptor is None:
            self._descriptor = self.file.open(writable=True)
        end = self._layout.pack(self._count, END, relative_offset)
        self._is_torn = True
        files.write_at(self._descriptor, (end,), len(HEADER) + self._count * len(end), len(end))
        self._is_torn = self._is_durable = False
        return relative_offset

    def sync(self) -> None:
        """Makes new entries durable; raises OSError. May run during an append."""
        if not self._is_durable:
            self._is_durable = True  # what is appended meanwhile sets it back
            files.sync_data(self._reader())

    def truncate(self, end_offset: int) -> None:
        """Removes the append times from `end_offset` on, and what follows the last whole entry.

        Raises OSError; then it is to be called again before the next append.
        """
        relative_offset, end = end_offset - self.base_offset, self._end
        lost_from: int | None = None
        if self._count and self._last.offset >= relative_offset:
            entries = self._entries()
            count = entries.floor(relative_offset - 1) + 1
            if count < entries.size and entries.at(count) is DAMAGED:  # it may lie before the cut
                lost_from = entries.at(count - 1).offset + 1 if count else 0
            self._shorten(entries, count)
        is_lost = self._end is None or self._is_torn
        if end is not None and self._count and (is_lost or end > relative_offset):
            self._end = relative_offset  # also if it cannot be written yet
            self._write_end(relative_offset)
        self._cut_file()
        if lost_from is not None and lost_from < relative_offset:
            self.mark_unknown(lost_from + self.base_offset)

    def size(self) -> int:
        """Returns the size of the file in bytes, 0 if it does not exist; raises OSError."""
        try:
            return self.file.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _cut_file(self) -> None:
        entries = self._count + (self._end is not None)
        size = len(HEADER) + entries * self._layout.entry_size if self._count else 0
        if self.size() > size:
            files.truncate(self.file.path, size)

    def mark_unknown(self, from_offset: int | None = None) -> None:
        """Marks the segment's append times, or those from an offset on, as unknown; raises OSError."""
        if from_offset is not None and from_offset > self.base_offset and self._count:
            self.truncate(from_offset)
            self.append(UNKNOWN, from_offset)
            return
        self._descriptor = None
        layout = Layout(self.base_offset)
        data = layout.header + layout.pack(0, UNKNOWN, 0)
        files.replace(self.file.path, data, losable=True)
        self._forget()
        self._last, self._count = AppendTimeEntry(UNKNOWN, 0), 1

    def close(self) -> None:
        """Releases the descriptor; the times in memory stay known."""
        self._descriptor = None

    def entries(self, offset: int = 0) -> Iterator[AppendTimeEntry]:
        """Yields the entries that hold from an offset on, UNKNOWN for damaged ones; raises OSError."""
        if self._count:
            yield from self._entries().known(offset - self.base_offset)

    def _entries(self) -> Entries:
        return Entries(self._reader(), self._layout, self._count, self.file, self._lost_from)

    def _reader(self) -> files.Descriptor:
        descriptor = self._descriptor
        return self.file.open() if descriptor is None else descriptor
