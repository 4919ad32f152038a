"""The append times of a segment's batches, read in the order of the log.

A walk over a segment asks for the append time of every batch. The file is read in blocks for it, and
not searched for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.segment.appended.layout import END, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.storage.segment.append_times import AppendTimes
    from tidelog.storage.segment.appended.layout import Entry


class Cursor:
    """Walks over the append times of one segment; offsets must grow from call to call."""

    def __init__(self, append_times: AppendTimes) -> None:
        """Begins at the first offset asked for; nothing is read before.

        Batches that are appended after that may get the time of those before them.
        """
        self._append_times, self._base_offset = append_times, append_times.base_offset
        self._entries: Iterator[Entry] | None = None
        self._entry: Entry | None = None
        self._next_entry: Entry | None = None

    def at(self, offset: int) -> int | None:
        """Returns the append time of the batch with this offset, None if unknown; raises OSError."""
        relative_offset = offset - self._base_offset
        if self._entries is None:
            self._entries = self._append_times.entries(offset)
            self._step()
        while self._next_entry is not None and self._next_entry.offset <= relative_offset:
            self._entry = self._next_entry
            self._step()
        entry = self._entry
        return None if entry is None or entry.time == UNKNOWN else entry.time

    def _step(self) -> None:
        """Looks at the next entry, up to what a power loss has left among them."""
        assert self._entries is not None
        entry, before = next(self._entries, None), self._entry
        if entry is not None and (
            entry.time == END or (before is not None and entry.offset <= before.offset)
        ):
            entry = None
        self._next_entry = entry
