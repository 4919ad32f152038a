"""`.txnindex` files: the transactions whose abort marker is in a segment, in Kafka's own format.

An entry is int16 version (0), int64 producer id, int64 first and last offset of the transaction,
and int64 last stable offset when it was aborted: the first offset of the oldest other transaction
that was open, else the offset behind the marker. Entries are in the order of their markers. Only
transactions with data have one.

An entry is written before its marker, so a process that is killed leaves no marker without its
entry. A power loss may: recovery then adds it again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames, files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.storage.segment.named_file import NamedFile
    from tidelog.storage.segment.segment_files import SegmentFiles

VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_LAST_OFFSET = attrgetter("last_offset")


class Aborted(NamedTuple):
    """An aborted transaction; `last_offset` is the offset of its marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse(data: bytes) -> list[Aborted]:
    """Returns every whole entry, unchecked; a torn last one is ignored."""
    whole = len(data) // ENTRY_SIZE * ENTRY_SIZE
    return [Aborted(*fields) for fields in _ENTRY.iter_unpack(data[:whole])]


def pack(entries: Iterable[Aborted]) -> bytes:
    """Returns the bytes of the file."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


class TransactionIndex:
    """The aborted transactions of one segment; its file is read when it is first needed."""

    __slots__ = ("_base_offset", "_entries", "_files", "_is_whole", "is_known_empty")

    def __init__(self, files_of_segment: SegmentFiles, base_offset: int) -> None:
        """Names the segment; nothing is touched."""
        self._files = files_of_segment
        self._base_offset = base_offset
        self._entries: list[Aborted] | None = None
        self.is_known_empty = False  # the file was read, and has no entry
        self._is_whole = True  # the file has nothing but the entries

    @property
    def is_in_memory(self) -> bool:
        """Whether `since` reads nothing."""
        return self.is_known_empty or self._entries is not None

    @property
    def entries(self) -> Sequence[Aborted]:
        """The entries in the order of their markers. Raises OSError."""
        entries = self._entries
        if entries is None:
            with self._file.lock:
                entries = self._entries
                if entries is None:
                    entries = self._read()
        return entries

    def since(self, offset: int) -> Sequence[Aborted]:
        """Returns the entries whose marker is at an offset or behind it. Raises OSError."""
        entries = () if self.is_known_empty else self.entries
        if not entries:
            return ()
        return entries[bisect_left(entries, offset, key=_LAST_OFFSET) :]

    def append(self, entry: Aborted) -> None:
        """Writes an entry behind the last one. Raises OSError; then there is no such entry."""
        file = self._file
        with file.lock:
            entries = self._read() if self._entries is None else self._entries
            size = len(entries) * ENTRY_SIZE
            if not self._is_whole:
                files.truncate(file.path, size)
            self._is_whole = False
            files.write_at(file.open(writable=True), (_ENTRY.pack(*entry),), size, ENTRY_SIZE)
            self._is_whole = True
            entries.append(entry)
            self.is_known_empty = False

    def restore(self, entry: Aborted) -> None:
        """Adds an entry unless the file has it, or a later one. Raises OSError."""
        with self._file.lock:  # several threads may read the log
            entries = self.entries
            if not entries or entries[-1].last_offset < entry.last_offset:
                self.append(entry)

    def truncate(self, end_offset: int) -> None:
        """Drops the transactions whose marker lies at or behind an offset. Raises OSError.

        The file is replaced, and made durable with its directory; nothing where there is no file.
        """
        file = self._file
        with file.lock:
            entries = self._read()
            kept = [entry for entry in entries if entry.last_offset < end_offset]
            if len(kept) < len(entries) or not self._is_whole:
                files.replace(file.path, pack(kept), durable=False)
            self._entries, self.is_known_empty, self._is_whole = kept, not kept, True

    def rest(self) -> None:
        """Lets go of the entries: they are read again when needed."""
        self._entries = None

    @property
    def _file(self) -> NamedFile:
        """The file; who reads or changes it holds its lock, so that no reader undoes an append."""
        return self._files.of(filenames.TXN_INDEX_SUFFIX)

    def _read(self) -> list[Aborted]:
        """Reads the file up to the first entry that cannot be right.

        A power loss may leave zeros where entries were written. A marker is behind the data. Needs
        the lock of the file.
        """
        file = self._file
        try:
            data = file.read()
        except FileNotFoundError:
            if file.is_gone:
                raise
            data = b""
        entries, least = [], self._base_offset
        for entry in parse(data):
            _, _, first_offset, last_offset, _ = entry
            if entry.version != VERSION or last_offset < least or first_offset >= last_offset:
                break
            entries.append(entry)
            least = entry.last_offset + 1
        self._is_whole = len(data) == len(entries) * ENTRY_SIZE
        self.is_known_empty, self._entries = not entries, entries
        return entries
