"""The `.log` file of a segment, and the iteration over its batches.

The `.log` holds batches of any message format, one after another, as they are on the wire. Every
batch before `tail.size` is whole, and their offsets grow. `tail` is replaced as one value after a
write, so a reader in another thread sees an end offset and a size that belong together, and never
half a batch. A file that has not been used for a while holds no descriptor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import filenames, files
from tidelog.storage.segment.batch_headers import batch_size, scan_intact
from tidelog.storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.protocol.records.batch import Batch

_FIRST_WINDOW = 8 * 1024  # read first when iterating: often a few batches are enough
_WINDOW = 256 * 1024  # read at once at most


class Tail(NamedTuple):
    """The end of a segment: the offset after its last one, and its size in bytes."""

    end_offset: int
    size: int


class Found(NamedTuple):
    """A batch, the buffer that holds it, and where it is."""

    position: int  # in the file
    batch: Batch  # `batch.position` is the position in `buffer`
    buffer: bytes


class LogFile:
    """The log file of the segment that begins at `base_offset`."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "base_offset",
        "directory",
        "file",
        "is_active",
        "tail",
    )

    def __init__(self, directory: Path, base_offset: int, tail: Tail) -> None:
        """Names the file; it is opened when it is first needed."""
        self.directory = directory
        self.base_offset = base_offset
        self.file = NamedFile(directory / filenames.segment_file(base_offset, filenames.LOG_SUFFIX))
        self.tail = tail
        self.is_active = False
        self._descriptor: files.Descriptor | None = None

    @property
    def path(self) -> Path:
        """Where the log is now: it is renamed when it is about to go."""
        return self.file.path

    def rest(self) -> None:
        """Releases the descriptor; readers in other threads keep theirs."""
        self._descriptor = None

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[Found]:
        """Iterates over the batches from a position where one starts, reading their headers.

        Raises CorruptMessage where the log ends within a batch, and OSError.
        """
        if end is None:
            end = self.tail.size
        descriptor = self._reader()
        window = _FIRST_WINDOW
        while position < end:
            buffer = files.read_at(descriptor, min(window, end - position), position)
            window = min(2 * window, _WINDOW)
            size = batch_size(buffer)
            if size is None or size > end - position:
                raise CorruptMessage(f"{self.path} has no whole batch at {position}")
            if size > len(buffer):
                buffer = files.read_at(descriptor, size, position)
                if len(buffer) < size:
                    raise CorruptMessage(f"{self.path} ends before its last batch, at {position}")
            read = 0
            for batch in scan_intact(buffer):
                yield Found(position + batch.position, batch, buffer)
                read = batch.position + batch.size
            position += read

    def _reader(self) -> files.Descriptor:
        descriptor = self._descriptor
        if descriptor is not None:
            if not self.is_active:
                files.RECENT.used(self)
            return descriptor
        descriptor = self.file.open()
        if not self.is_active:
            self._descriptor = descriptor
            files.RECENT.used(self)
        return descriptor

    def _writer(self) -> files.Descriptor:
        """Returns a descriptor to append with, which is kept; raises OSError."""
        descriptor = self._descriptor = self.file.open(writable=True)
        files.RECENT.used(self)
        return descriptor
