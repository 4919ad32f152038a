"""What both indexes of a segment share: entries gather in memory and are written to the file later.

`flush` appends new entries to the file, which holds the first `_flushed` ones. After entries were
dropped, the next flush replaces the file by rename. That is safe because an index can be rebuilt
from its log. Subclasses define what an entry is and how the file is read.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from storage import files
from storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from pathlib import Path

NOT_OURS = -1  # the file must be replaced


class SparseIndex(ABC):
    """One index of a segment: in memory while in use, on disk when flushed."""

    __slots__ = ("_flushed", "base_offset", "file", "flush_lock")

    entry_size: ClassVar[int]

    def __init__(self, path: Path | NamedFile, base_offset: int) -> None:
        """Begins with an empty index; `load` of the subclass reads the file."""
        self.file = NamedFile.of(path)
        self.base_offset = base_offset
        self._flushed = NOT_OURS  # how many entries the file has
        self.flush_lock = threading.RLock()  # roll and checkpoint may flush at once
        self._forget()

    @property
    def path(self) -> Path:
        """Where the file is now."""
        return self.file.path

    @abstractmethod
    def __len__(self) -> int:
        """The number of entries that readers in any thread may look at."""

    @abstractmethod
    def _forget(self) -> None:
        """Drops all entries."""

    @abstractmethod
    def _keep(self, count: int) -> None:
        """Drops every entry but the first `count`."""

    @abstractmethod
    def _packed(self, start: int, end: int) -> bytes:
        """Returns entries as bytes of the file."""

    def clear(self) -> None:
        """Drops all entries in memory; the file keeps its own until the next flush."""
        self._forget()
        self._flushed = NOT_OURS

    def flush(self) -> None:
        """Brings the file up to date, not yet durably; raises OSError."""
        with self.flush_lock:
            flushed, count = self._flushed, len(self)
            if flushed == count:
                return
            data = self._packed(max(flushed, 0), count)
            if flushed == NOT_OURS:
                files.replace(self.file.path, data, losable=True)
            else:
                files.truncate(self.file.path, flushed * self.entry_size)
                descriptor = self.file.open(writable=True)
                files.write_at(descriptor, (data,), flushed * self.entry_size, len(data))
            self._flushed = count

    @property
    def is_anew(self) -> bool:
        """Whether the next flush replaces the file."""
        return self._flushed == NOT_OURS

    def remove_file(self) -> bool:
        """Removes the file, which the next flush creates again; False if there is none.

        Raises OSError.
        """
        self._flushed = NOT_OURS
        if not self.file.path.exists():
            return False
        files.unlink(self.file.path)
        return True

    def _read_from(self, size: int, count: int) -> None:
        """Notes that a file of `size` bytes gave `count` entries.

        If there were zeros or a torn entry after them, the next flush must not append to the file.
        """
        self._flushed = count if size == count * self.entry_size else NOT_OURS

    def _drop_from(self, count: int) -> None:
        """Drops all entries but the first `count`; the caller holds the flush lock."""
        self._keep(count)
        if self._flushed > count:
            self._flushed = NOT_OURS  # the file has too many entries


def flush_both(index: SparseIndex, time_index: SparseIndex) -> None:
    """Brings the files of two indexes up to date that were made together; raises OSError.

    A rebuilt index may have entries at other batches (index.interval.bytes has changed), and an old
    offset index with a new time index gives wrong results. So no crash leaves such a pair.
    """
    with index.flush_lock, time_index.flush_lock:
        if index.is_anew or time_index.is_anew:
            were_there = [each.remove_file() for each in (time_index, index)]
            if any(were_there):
                files.sync(index.file.path.parent)
        index.flush()
        time_index.flush()


def used_part(data: bytes, entry_size: int) -> bytes:
    """Returns a file's whole entries without the zeros that Kafka preallocates at the end."""
    used = len(data.rstrip(b"\0"))
    whole = -(-used // entry_size) * entry_size  # an entry may itself end in zeros
    return data[: min(whole, len(data) // entry_size * entry_size)]
