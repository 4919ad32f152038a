"""Which tombstones compaction.strategy=timestamp may remove, of those whose delete horizon has come.

By time, a tombstone also deletes older records that are written after it. So it stays while a record
of its key follows it: one that the same cleaning removes is there until its segment is replaced, and
one that cannot be cleaned yet, be it in the active segment, would stay for good without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.records import kernels, survivors
from tidelog.storage.time.timestamp import MAX_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.storage.segment.log_file import Found

_EVERYTHING = 2**63 - 1


class DueTombstones:
    """The tombstones whose horizon has come, by key, and what follows them."""

    def __init__(self, most: int) -> None:
        """Begins without any; the keys of at most `most` records are known at once."""
        # Each record's "time" is the last offset of its batch: the last record of a key is the newest.
        self._keys = kernels.KeyMap(most, True)
        self._end_offset = 0  # the keys of due batches before it are known
        self._is_full = False

    def __bool__(self) -> bool:
        return self._end_offset > 0

    def note(self, found: Found) -> None:
        """Adds a due batch, if it has tombstones; in the order of the log. Raises CorruptMessage."""
        batch = found.batch
        if self._is_full or not survivors.look_at_all(found.buffer, batch)[1].has_tombstone:
            return
        offset = batch.last_offset
        full_at = survivors.note(self._keys, found.buffer, batch, 0, MAX_TIMESTAMP, offset)
        self._is_full = full_at is not None
        if not self._is_full:
            self._end_offset = batch.last_offset + 1

    def follow(self, found: Found) -> None:
        """Keeps the tombstones of the keys of a batch that follows them. Raises CorruptMessage."""
        offset = found.batch.last_offset
        survivors.update_by_time(self._keys, found.buffer, found.batch, 0, MAX_TIMESTAMP, offset)

    def keep_all(self) -> None:
        """Keeps all tombstones in this cleaning, because not all that follows them is known."""
        self._end_offset, self._is_full = 0, True

    def may_go(self, found: Found) -> bool:
        """Returns whether no record follows of the keys of a due batch. Raises CorruptMessage."""
        if found.batch.last_offset >= self._end_offset:
            return False
        _, filtered = survivors.filter_records(
            self._keys, found.buffer, found.batch, _EVERYTHING, keep_tombstones=True
        )
        return filtered.kept == len(filtered.mask)
