"""The `.log` file of a segment, and the iteration over its batches.

The `.log` holds batches of any message format, one after another, as they are on the wire. Every
batch before `tail.size` is whole, and their offsets grow. `tail` is replaced as one value after a
write, so a reader in another thread sees an end offset and a size that belong together, and never
half a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import files
from tidelog.storage.segment.batch_headers import batch_size, scan_intact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.protocol.records.batch import Batch
    from tidelog.storage.segment.named_file import NamedFile

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
    """The log file of one segment."""

    __slots__ = ("descriptor", "file", "is_active", "is_ended", "tail")

    def __init__(self, file: NamedFile, tail: Tail) -> None:
        """Describes the file; it is opened when it is first needed."""
        self.file = file
        self.tail = tail
        self.is_active = False
        self.is_ended = False  # the next append begins a new segment, whatever the settings say
        self.descriptor: files.Descriptor | None = None  # kept until the segment rests

    @property
    def path(self) -> Path:
        """Where the log is now: it is renamed when it is about to go."""
        return self.file.path

    @property
    def takes_appends(self) -> bool:
        """Whether a batch may still be appended: then no other thread may replace the indexes."""
        return self.is_active and not self.is_ended

    def reader(self) -> files.Descriptor:
        """Returns the descriptor that is kept, or a new one; raises OSError."""
        descriptor = self.descriptor
        return self.file.open() if descriptor is None else descriptor

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[Found]:
        """Iterates over the batches from a position where one starts, reading their headers.

        Raises CorruptMessage where the log ends within a batch, and OSError.
        """
        if end is None:
            end = self.tail.size
        descriptor = self.reader()
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
