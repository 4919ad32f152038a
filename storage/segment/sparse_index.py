"""What the indexes of a segment share: entries gather in memory and reach their file late.

The file is only appended to, by `flush`, and holds the first `_flushed` entries; once entries were
dropped or forgotten it is written anew, by rename. That is safe because an index can always be
rebuilt from its log. What an entry is, and how the file is read, is for the index itself to say.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from storage import files
from storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from pathlib import Path

NOT_OURS = -1  # the file has to be written anew


class SparseIndex(ABC):
    """One segment's index: in memory while in use, on disk when flushed."""

    __slots__ = ("_flushed", "base_offset", "file", "flush_lock")

    entry_size: ClassVar[int]

    def __init__(self, path: Path | NamedFile, base_offset: int) -> None:
        """Begin an empty index; the index's `load` reads what the file holds."""
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
        """How many entries a reader in any thread may look at."""

    @abstractmethod
    def _forget(self) -> None:
        """Have no entries."""

    @abstractmethod
    def _keep(self, count: int) -> None:
        """Drop every entry but the first `count`."""

    @abstractmethod
    def _packed(self, start: int, end: int) -> bytes:
        """Entries as the file has them."""

    def clear(self) -> None:
        """Forget every entry; the file keeps its own until the next flush."""
        self._forget()
        self._flushed = NOT_OURS

    def flush(self) -> None:
        """Bring the file up to date; raises OSError. It is not made durable here."""
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
        """Whether the next flush writes the file anew."""
        return self._flushed == NOT_OURS

    def remove_file(self) -> bool:
        """Remove the file, which the next flush makes anew; False when there is none. Raises OSError."""
        self._flushed = NOT_OURS
        if not self.file.path.exists():
            return False
        files.unlink(self.file.path)
        return True

    def _read_from(self, size: int, count: int) -> None:
        """Note that a file of `size` bytes gave `count` entries.

        Zeros or a torn entry behind them would come between these entries and the next ones.
        """
        self._flushed = count if size == count * self.entry_size else NOT_OURS

    def _drop_from(self, count: int) -> None:
        """Drop every entry but the first `count`; for a caller that holds the flush lock."""
        self._keep(count)
        if self._flushed > count:
            self._flushed = NOT_OURS  # the file has entries too many: the next flush writes it anew


def flush_both(index: SparseIndex, time_index: SparseIndex) -> None:
    """Bring the files of two indexes up to date that were made together; raises OSError.

    One made anew may have its entries elsewhere (index.interval.bytes has changed), and what is found
    with one of them and an older one of the other is wrong. So no crash leaves such a pair.
    """
    with index.flush_lock, time_index.flush_lock:
        if index.is_anew or time_index.is_anew:
            were_there = [each.remove_file() for each in (time_index, index)]
            if any(were_there):
                files.sync(index.file.path.parent)
        index.flush()
        time_index.flush()


def used_part(data: bytes, entry_size: int) -> bytes:
    """Return a file's whole entries but for zeros at the end, of which Kafka preallocates 10 MB."""
    used = len(data.rstrip(b"\0"))
    whole = -(-used // entry_size) * entry_size  # an entry may itself end in zeros
    return data[: min(whole, len(data) // entry_size * entry_size)]
