"""A batch that is too large to be held in memory while a client reads it: a place in a file.

It keeps the file open, so that it can be read even after the file was deleted; the disk's space is
released with it. Bytes of a log below the high watermark never change.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import files

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Batch
    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class LargeBatch:
    """One stored batch that is read in slices."""

    __slots__ = ("_descriptor", "_position", "batch")

    def __init__(self, descriptor: files.Descriptor, position: int, batch: Batch) -> None:
        self.batch = batch
        self._descriptor = descriptor
        self._position = position

    def __len__(self) -> int:
        return self.batch.size

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more. Raises OSError."""
        return self._descriptor.is_unlinked()

    def read(self, start: int, size: int) -> bytes:
        """Returns a slice of the batch, from the byte `start` on. Raises OSError."""
        size = min(size, self.batch.size - start)
        data = files.read_at(self._descriptor, size, self._position + start)
        if len(data) < size:
            raise OSError(f"the file ends before byte {self._position + start + size}")
        return data


def large_batch(state: LogState, offset: int, upper_offset: int) -> LargeBatch | None:
    """Returns the batch that holds an offset, or the next one; None if it reaches `upper_offset`.

    Raises NotLeaderOrFollower and KafkaStorageError.
    """
    state.check_online()
    with state.hold() as version:
        try:
            found = _find(version.segments, offset, upper_offset)
        except (OSError, CorruptMessage) as error:
            from tidelog.storage.log.failures import read_error

            raise read_error(state, version, error) from error
    state.check_generation(version)
    return found


def _find(segments: tuple[Segment, ...], offset: int, upper_offset: int) -> LargeBatch | None:
    first = max(bisect_right(segments, offset, key=_BASE_OFFSET) - 1, 0)
    for segment in segments[first:]:
        found = segment.header_of(offset)
        if found is None:
            continue
        if found.batch.last_offset >= upper_offset:
            return None
        return LargeBatch(segment.files.log.open(), found.position, found.batch)
    return None
