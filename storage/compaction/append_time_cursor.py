"""The append times of a segment's batches, as compaction compares them.

Where an append time is unknown, the moment of adoption takes its place for whoever asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.segment.appended.cursor import Cursor
from tidelog.storage.time.corrections import judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.adoption import Adoptions
    from tidelog.storage.time.corrections import Correction


class AppendTimeCursor:
    """Walks over the append times of one segment; offsets must grow from call to call."""

    def __init__(
        self, segment: Segment, adoptions: Adoptions, corrections: Sequence[Correction] = ()
    ) -> None:
        self._append_times = Cursor(segment.append_times)
        self._adoptions, self._corrections = adoptions, corrections

    def appended_or_adopted(self, offset: int) -> int:
        """Returns what the append time of the batch with this offset counts as.

        If it is unknown, that is the moment of adoption. Raises OSError.
        """
        append_time_ms = self._append_times.at(offset)
        if append_time_ms is None:
            return self._adoptions.time_of(offset)
        return judged(self._corrections, offset, append_time_ms)
