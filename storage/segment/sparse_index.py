"""What both indexes of a segment share: entries gather in memory and are written to a file later.

`flush` appends new entries to the file (`IndexFile`). After entries were dropped, the next flush
replaces the file by rename. That is safe because an index can be rebuilt from its log. Subclasses
define what an entry is and how the file is read.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from tidelog.storage import files
from tidelog.storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOT_OURS = -1  # the file must be replaced
_ZEROS = bytes(64 << 10)


class IndexFile:
    """A file with a header and some entries of an index, and how many it has."""

    __slots__ = ("_entry_size", "_header", "count", "file")

    def __init__(self, path: Path | NamedFile, entry_size: int, header: bytes = b"") -> None:
        """Names the file; nothing is touched."""
        self.file = NamedFile.of(path)
        self.count = NOT_OURS  # how many entries the file has
        self._entry_size, self._header = entry_size, header

    def write(self, count: int, packed: Callable[[int, int], bytes]) -> None:
        """Brings the file up to its first `count` entries, not yet durably; raises OSError.

        `packed` returns entries as bytes, from one to another.
        """
        written = self.count
        if written == count:
            return
        data = packed(max(written, 0), count)
        if written == NOT_OURS:
            files.replace(self.file.path, self._header + data, losable=True)
        else:
            position = len(self._header) + written * self._entry_size
            files.truncate(self.file.path, position)
            descriptor = self.file.open(writable=True)
            files.write_at(descriptor, (data,), position, len(data))
        self.count = count

    def note_read(self, size: int, count: int) -> None:
        """Takes over the number of entries that were read from the file, which has `size` bytes.

        If there was anything else after them, the next write must not append to the file.
        """
        whole = len(self._header) + count * self._entry_size
        self.count = count if size == whole else NOT_OURS

    def keep(self, count: int) -> None:
        """Notes that the index has no more than `count` entries left for the file."""
        if self.count > count:
            self.count = NOT_OURS  # the file has too many entries

    def remove(self) -> bool:
        """Removes the file, which the next write creates again; False if there is none.

        Raises OSError.
        """
        self.count = NOT_OURS
        if not self.file.path.exists():
            return False
        files.unlink(self.file.path)
        return True


class SparseIndex(ABC):
    """One index of a segment: in memory while in use, on disk when flushed."""

    __slots__ = ("_file", "base_offset", "flush_lock")

    entry_size: ClassVar[int]

    def __init__(self, path: Path | NamedFile, base_offset: int) -> None:
        """Begins with an empty index; `load` of the subclass reads the file."""
        self._file = IndexFile(path, self.entry_size)
        self.base_offset = base_offset
        self.flush_lock = threading.RLock()  # roll and checkpoint may flush at once
        self._forget()

    @property
    def path(self) -> Path:
        """Where the file is now."""
        return self._file.file.path

    @abstractmethod
    def __len__(self) -> int:
        """The number of entries that readers in any thread may use."""

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
        self._file.count = NOT_OURS

    def flush(self) -> None:
        """Writes new entries to the file, without fsync. Raises OSError."""
        with self.flush_lock:
            self._file.write(len(self), self._packed)

    @property
    def is_anew(self) -> bool:
        """Whether the next flush replaces the file."""
        return self._file.count == NOT_OURS

    def remove_file(self) -> bool:
        """Removes the file, which the next flush creates again; False if there is none.

        Raises OSError.
        """
        return self._file.remove()

    def _drop_from(self, count: int) -> None:
        """Drops all entries but the first `count`; the caller holds the flush lock."""
        self._keep(count)
        self._file.keep(count)


def flush_both(index: SparseIndex, time_index: SparseIndex) -> None:
    """Brings the files of two indexes up to date that were made together; raises OSError.

    A rebuilt index may have entries at other batches (index.interval.bytes has changed), and an old
    offset index with a new time index gives wrong results. So no crash leaves such a pair.
    """
    with index.flush_lock, time_index.flush_lock:
        if index.is_anew or time_index.is_anew:
            were_there = [each.remove_file() for each in (time_index, index)]
            if any(were_there):
                files.sync(index.path.parent)
        index.flush()
        time_index.flush()


def used_part(data: bytes, entry_size: int) -> bytes:
    """Returns a file's whole entries without the zeros that Kafka preallocates at the end."""
    used = len(data)
    while used >= len(_ZEROS) and data.endswith(_ZEROS, 0, used):  # rstrip takes a byte at a time
        used -= len(_ZEROS)
    last = max(used - len(_ZEROS), 0)
    used = last + len(data[last:used].rstrip(b"\0"))
    whole = -(-used // entry_size) * entry_size  # an entry may itself end in zeros
    return data[: min(whole, len(data) // entry_size * entry_size)]
