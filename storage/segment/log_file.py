"""The `.log` file of a segment, and the walk over its batches.

The `.log` is nothing but batches of any message format, one after another, as they go over the
wire. Of the batches before `tail.size` every one is whole and their offsets grow; `tail` is replaced
as one value after a write, so a reader in another thread sees an end offset and a size that belong
together, and never a batch half written. A file that was not used for a while holds no descriptor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import CorruptMessage
from storage import filenames, files
from storage.segment.batch_headers import batch_size, scan_intact
from storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.records.batch import Batch

_FIRST_WINDOW = 8 * 1024  # how much a walk over headers reads at first, for it may be a short one
_WINDOW = 256 * 1024  # and at most

RECENT = files.Recent(384)  # segments that may hold a descriptor or two


class Tail(NamedTuple):
    """Where a segment ends: the offset after its last one, and its size in bytes."""

    end_offset: int
    size: int


class Found(NamedTuple):
    """A batch met on a walk."""

    position: int  # in the file
    batch: Batch  # its position is the one in `buffer`
    buffer: bytes


class LogFile:
    """The batches from `base_offset` on, up to the next segment's."""

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
        """Describe the file; it is not touched before it is needed."""
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
        """Let go of the descriptor; readers in other threads keep theirs."""
        self._descriptor = None

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[Found]:
        """Go over the batches from a position where one starts, reading their headers.

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
            read = 0
            for batch in scan_intact(buffer):
                yield Found(position + batch.position, batch, buffer)
                read = batch.position + batch.size
            position += read

    def _reader(self) -> files.Descriptor:
        descriptor = self._descriptor
        if descriptor is not None:
            if not self.is_active:
                RECENT.used(self)
            return descriptor
        descriptor = self.file.open()
        if not self.is_active:
            self._descriptor = descriptor
            RECENT.used(self)
        return descriptor

    def _writer(self) -> files.Descriptor:
        """Return a descriptor to append with, and keep it; raises OSError."""
        descriptor = self._descriptor = self.file.open(writable=True)
        RECENT.used(self)
        return descriptor
