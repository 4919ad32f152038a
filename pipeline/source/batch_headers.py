"""Reads batch headers by position, to check an index entry or to find the end of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import scan, verify
from tidelog.protocol.records.layout import PREFIX_SIZE
from tidelog.storage.segment.batch_headers import scan_intact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.source.locations import File
    from tidelog.protocol.records.layout import Batch

HEADER_SIZE = 61  # enough for the header of any format
_CHUNK = 4 << 20


def size_at(data: bytes) -> int:
    """Returns the size in the first bytes of a batch; it may be invalid."""
    return PREFIX_SIZE + int.from_bytes(data[8:12], "big", signed=True)


def header_at(file: File, position: int, end: int) -> Batch | None:
    """Reads the header of the batch at a position; None if no intact batch begins there.

    `end` is the end of the file's part.
    """
    if not 0 <= position <= end - PREFIX_SIZE:
        return None
    data = file.read_at(position, min(HEADER_SIZE, end - position))
    size = size_at(data)
    if len(data) < PREFIX_SIZE or size < PREFIX_SIZE or position + size > end:
        return None
    data = file.read_at(position, size)
    try:
        batches = scan(data)
        if batches:
            verify(data, batches[0])
    except CorruptMessage:
        return None
    return batches[0] if batches else None


class Batches:
    """The complete batches of a file from a position on, to its end or the first broken one.

    Iterating yields the header of each, and the bytes in which it is at `batch.position`.
    Afterwards `position` is where it stopped, and `why_ended` says why.
    """

    def __init__(self, file: File, position: int, *, check: bool = False) -> None:
        """Begins at a batch; with `check` one with a wrong CRC is broken, too."""
        self._file = file
        self._check = check
        self.position = position
        self.why_ended = "the file ends there"

    def __iter__(self) -> Iterator[tuple[Batch, bytes]]:
        """Raises OSError."""
        file, chunk = self._file, _CHUNK
        while self.position < file.size:
            start = self.position
            data = file.read_at(start, chunk)
            try:
                for batch in scan_intact(data):
                    if self._check:
                        verify(data, batch)
                    yield batch, data
                    self.position = start + batch.position + batch.size
            except CorruptMessage as error:
                self.why_ended = error.message + (f", counted from byte {start}" if start else "")
                return
            if self.position > start:
                chunk = _CHUNK
            elif start + len(data) >= file.size or len(data) < chunk:
                self.why_ended = f"the batch at byte {start} is cut short"
                return
            else:
                chunk = max(size_at(data), chunk)
