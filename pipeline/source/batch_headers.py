"""Reads batch headers by position, to check an index entry or to find the end of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import scan, verify
from tidelog.protocol.records.layout import PREFIX_SIZE

if TYPE_CHECKING:
    from tidelog.pipeline.source.locations import File
    from tidelog.protocol.records.layout import Batch

HEADER_SIZE = 61  # enough for the header of any format
_CHUNK = 4 << 20


def size_at(data: bytes) -> int:
    """Returns the size in the first bytes of a batch; it may be invalid."""
    return PREFIX_SIZE + int.from_bytes(data[8:12], "big", signed=True)


def header_at(file: File, position: int, end: int, *, check: bool) -> Batch | None:
    """Reads the header of the batch at a position; None if no complete batch begins there.

    `end` is the end of the file's part. With `check` the whole batch is read, and a wrong CRC gives
    None too.
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
        if check and batches:
            verify(data, batches[0])
    except CorruptMessage:
        return None
    return batches[0] if batches else None


class Walk:
    """Reads the batches of a file from a position to its end, or to the first incomplete one.

    Afterwards `position` is where it stopped, and `end_offset` the offset after the last batch
    before it.
    """

    def __init__(self, file: File, position: int, offset: int, *, check: bool) -> None:
        """Begins at a batch; `offset` is the offset after all earlier batches."""
        self._file = file
        self._check = check
        self.position = position
        self.end_offset = offset
        self.why_ended = "the file ends there"

    def run(self) -> None:
        """Reads to the end. Raises OSError."""
        file, chunk = self._file, _CHUNK
        while self.position < file.size:
            data = file.read_at(self.position, chunk)
            done = self._take(data)
            if done is None:
                return
            if done:
                chunk = _CHUNK
            elif self.position + len(data) >= file.size or len(data) < chunk:
                self.why_ended = f"the batch at byte {self.position} is cut short"
                return
            else:
                chunk = max(size_at(data), chunk)
            self.position += done

    def _take(self, data: bytes) -> int | None:
        """Processes the complete batches of some bytes; returns their size, or None if corrupt."""
        done = 0
        try:
            batches = scan(data)
        except CorruptMessage:
            batches = None
        while True:
            try:
                one = batches if batches is not None else scan(data, done, _end_of(data, done))
                for batch in one:
                    if self._check:
                        verify(data, batch)
                    self.end_offset = batch.last_offset + 1
                    done = batch.position + batch.size
            except CorruptMessage as error:
                self.position += done
                self.why_ended = f"{error.message}"
                if self.position - done:
                    self.why_ended += f", counted from byte {self.position - done}"
                return None
            if batches is not None or not one:
                return done


def _end_of(data: bytes, position: int) -> int:
    """Returns the end of the batch at a position, or the end of the bytes."""
    return min(len(data), max(position + size_at(data[position : position + 12]), position + 12))
