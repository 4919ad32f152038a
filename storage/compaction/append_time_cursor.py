"""The append times of a segment's batches, read in the order of the log.

Where an append time is unknown, the moment of adoption takes its place for whoever asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.segment.appended.layout import UNKNOWN
from storage.time.corrections import judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.segment.appended.layout import Entry
    from storage.segment.segment import Segment
    from storage.time.adoption import Adoptions
    from storage.time.corrections import Correction


class AppendTimeCursor:
    """Walks over the append times of one segment; offsets must grow from call to call."""

    def __init__(
        self, segment: Segment, adoptions: Adoptions, corrections: Sequence[Correction] = ()
    ) -> None:
        """Begins before the first batch. Raises OSError."""
        self._entries, self._base_offset = segment.append_times.entries(), segment.base_offset
        self._adoptions, self._corrections = adoptions, corrections
        self._entry: Entry | None = None
        self._next_entry = next(self._entries, None)

    def at(self, offset: int) -> int | None:
        """Returns the append time of the batch with this offset, None if unknown; raises OSError."""
        relative_offset = offset - self._base_offset
        while self._next_entry is not None and self._next_entry.offset <= relative_offset:
            self._entry, self._next_entry = self._next_entry, next(self._entries, None)
        entry = self._entry
        return None if entry is None or entry.time == UNKNOWN else entry.time

    def appended_or_adopted(self, offset: int) -> int:
        """Returns what the append time of the batch with this offset counts as.

        If it is unknown, that is the moment of adoption. Raises OSError.
        """
        append_time_ms = self.at(offset)
        if append_time_ms is None:
            return self._adoptions.time_of(offset)
        return judged(self._corrections, offset, append_time_ms)
