"""Reads a split into columns: `access.read` yields `Columns`; `levels` makes Arrow batches of them.

Every record from the split's first offset to before its end is returned once, in order. It leaves
out control records, with read_committed the records of aborted transactions, and with event times
those outside the range or without a time. At a batch that is truncated or corrupt, reading stops
with a SourceError that names the file, the position and the offset. The CRC of each decompressed
batch is checked unless `verify_crc` is off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tidelog.pipeline.source import locations
from tidelog.pipeline.source.append_times import UNKNOWN, AppendTimes
from tidelog.pipeline.source.batch_headers import HEADER_SIZE, size_at
from tidelog.pipeline.source.columns import LAST_OFFSET, NOTHING_KNOWN, POSITION, Columns
from tidelog.pipeline.source.splits import READ_COMMITTED, READ_UNCOMMITTED, SourceError
from tidelog.pipeline.source.transactions import Aborts
from tidelog.protocol.records import columns as decoder
from tidelog.protocol.records.column_buffers import BATCH_FIELDS
from tidelog.protocol.records.columns import (
    FULL,
    HEADERS,
    PAST,
    RECORDS,
    TIMES,
    BrokenBatch,
    ColumnBuffers,
    RecordSelection,
)
from tidelog.storage import filenames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.source.append_times import FetchedTimes
    from tidelog.pipeline.source.splits import SegmentPart, Selection, Split
    from tidelog.protocol.wire import Buffer

__all__ = [
    "HEADERS",
    "RECORDS",
    "TIMES",
    "UNKNOWN",
    "Columns",
    "Filling",
    "ReadOptions",
    "read_file",
]

BATCH_BYTES: Final = 16 << 20
CHUNK: Final = 4 << 20
_NEAR_CHUNK: Final = (
    1 << 20
)  # of a local file: so much stays in a processor's cache while it is decoded
_LEAST_BATCHES: Final = 8  # the last one of a chunk is read again


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a split is read.

    `depth`: HEADERS (of batches), TIMES (of records), or whole RECORDS. Event times are in ms, the
    first included, the second not. `batch_bytes`: the approximate size of the columns returned at
    once, but never less than one batch of the log. `rack`: that of the reader (KIP-392), if any.
    """

    depth: int = RECORDS
    low_time: int | None = None
    high_time: int | None = None
    verify_crc: bool = True
    isolation: str = READ_UNCOMMITTED
    batch_bytes: int = BATCH_BYTES
    rack: str = ""

    @classmethod
    def of(
        cls,
        selection: Selection,
        depth: int = RECORDS,
        *,
        verify_crc: bool = True,
        batch_bytes: int = BATCH_BYTES,
    ) -> ReadOptions:
        """Returns the options for a selection."""
        return cls(
            depth,
            selection.low_time,
            selection.high_time,
            verify_crc,
            selection.isolation,
            batch_bytes,
            selection.rack,
        )

    def wanted(self, split: Split) -> RecordSelection:
        """Returns the request to the decoder."""
        low, high = self.low_time, self.high_time
        return RecordSelection(
            depth=self.depth,
            low_offset=split.start_offset,
            high_offset=split.end_offset,
            timed=low is not None or high is not None,
            low_time=-(2**63) if low is None else low,
            high_time=2**63 - 1 if high is None else high - 1,
            verify=self.verify_crc,
            limit=max(self.batch_bytes, 1),
        )


def read_file(split: Split, part: SegmentPart, options: ReadOptions) -> Iterator[Columns]:
    """Reads a split from a part of a segment.

    Raises SourceError if it is corrupt or gone, and OSError.
    """
    try:
        with locations.File(part.location) as file:
            _refuse_changed(part, file.size)
            yield from _read_part(split, part, file, options)
    except FileNotFoundError as error:
        raise SourceError(
            f"{part.location} is gone since it was planned: retention or compaction deleted the segment"
        ) from error


def _refuse_changed(part: SegmentPart, size: int) -> None:
    """Raises SourceError if a file is not the planned one, because positions would be wrong."""
    if size < max(part.file_size, part.end) or (not part.is_active and size != part.file_size):
        raise SourceError(
            f"{part.location} has {size} bytes, and had {part.file_size} when it was planned: compaction"
            " rewrote it, or the log was truncated; plan again"
        )


class Filling:
    """Fills buffers with record sets, and makes `Columns` of them."""

    def __init__(
        self, split: Split, wanted: RecordSelection, append_times: AppendTimes | FetchedTimes
    ) -> None:
        """Begins empty. `wanted` and `append_times` may be changed between two record sets."""
        self._split = split
        self.append_times = append_times
        self.wanted = wanted
        self._last_offset = -1
        self._begin()

    def _begin(self) -> None:
        self._buffers = ColumnBuffers()
        self._origins: list[tuple[int, int]] = []  # for rows from this number on

    def append(self, data: Buffer, start: int, origin: int) -> tuple[int, int]:
        """Appends from data[start:]; data[0] is at `origin` in its file.

        See `decoder.append_set`.
        """
        self._origins.append((self._buffers.batch_count, origin))
        return decoder.append_set(data, self._buffers, self.wanted, start)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was appended since the last `take`."""
        return not self._buffers.batch_count

    def take(self) -> Columns:
        """Returns what was appended, and begins again. Raises SourceError if offsets decrease."""
        buffers, split = self._buffers, self._split
        table = np.frombuffer(buffers.batches, np.int64, buffers.batch_count * BATCH_FIELDS)
        batches = table.reshape(-1, BATCH_FIELDS)
        for number, (row, origin) in enumerate(self._origins):
            following = self._origins[number + 1 :]
            batches[row : following[0][0] if following else None, POSITION] += origin
        offsets = batches[:, LAST_OFFSET]
        wrong = np.flatnonzero(np.diff(offsets, prepend=self._last_offset) <= 0)
        if len(wrong):
            row = int(wrong[0])
            raise SourceError(
                f"{_where(split)}: the batch at byte {batches[row, POSITION]} ends with offset"
                f" {offsets[row]}, which is not behind the one before it"
            )
        self._last_offset = int(offsets[-1])
        self._begin()
        return Columns(split.topic, split.partition, buffers, batches, self.append_times)


def _where(split: Split) -> str:
    """Returns the location of a split for messages."""
    if split.part is None:
        return f"{split.topic}-{split.partition} of {split.brokers}"
    return split.part.location


def broken(split: Split, error: BrokenBatch, origin: int) -> SourceError:
    """Returns the error that names the batch of a split that cannot be read."""
    return SourceError(
        f"{_where(split)}: the batch at byte {origin + error.position} (offset {error.offset})"
        f" {error.reason}"
    )


def _append_times(part: SegmentPart) -> AppendTimes:
    ending = filenames.LOG_SUFFIX
    path, mark, options = (
        part.location.partition("?") if locations.is_uri(part.location) else (part.location, "", "")
    )
    location = path.removesuffix(ending) + filenames.APPEND_TIMES_SUFFIX + mark + options
    data = locations.read(location)
    if data is None:
        return NOTHING_KNOWN
    return AppendTimes(data, part.base_offset, part.append_times_until, is_closed=part.is_closed)


def _read_part(
    split: Split, part: SegmentPart, file: locations.File, options: ReadOptions
) -> Iterator[Columns]:
    filling = Filling(split, options.wanted(split), _append_times(part))
    aborts = Aborts(split, part) if options.isolation == READ_COMMITTED else None
    position, chunk = part.start, _chunk(file, b"")
    while position < part.end:
        if options.low_time is not None and file.is_near:
            position = _pass_over(file, position, part.end, options.low_time)
        data = file.read_at(position, min(chunk, part.end - position))
        if aborts is not None:
            filling.wanted = filling.wanted._replace(aborted=aborts.among(data))
        at = 0
        while True:
            try:
                at, why = filling.append(data, at, position)
            except BrokenBatch as error:
                if _is_unused(file, position + error.position, part.end):
                    at, why = 0, PAST
                    break
                raise broken(split, error, position) from error
            if why != FULL:
                break
            yield filling.take()
        if why == PAST:
            break
        position += at
        if at:
            chunk = _chunk(file, data[at : at + HEADER_SIZE])
        elif len(data) < min(chunk, part.end - position) or len(data) == part.end - position:
            if data and not _is_unused(file, position, part.end):
                raise _cut_short(split, part, file, position, data)
            break
        else:
            chunk = max(size_at(data), 2 * chunk)
    if not filling.is_empty:
        yield filling.take()


def _chunk(file: locations.File, head: bytes) -> int:
    """Returns how much to read at once, before a batch that begins with some bytes."""
    if not file.is_near:
        return CHUNK
    return min(max(_NEAR_CHUNK, _LEAST_BATCHES * size_at(head)), CHUNK)


def _cut_short(
    split: Split, part: SegmentPart, file: locations.File, position: int, data: bytes
) -> SourceError:
    offset = int.from_bytes(data[:8], "big", signed=True) if len(data) >= 8 else "unknown"
    return SourceError(
        f"{_where(split)}: the batch at byte {position} (offset {offset}) claims {size_at(data)} bytes,"
        f" and is cut short after {min(part.end, file.size) - position}"
    )


def _pass_over(file: locations.File, position: int, end: int, low_time: int) -> int:
    """Returns the position of the first batch whose header does not prove it older than a time."""
    while position < end:
        head = file.read_at(position, min(HEADER_SIZE, end - position))
        if len(head) < HEADER_SIZE or head[16] != 2 or size_at(head) < HEADER_SIZE:
            break
        if int.from_bytes(head[35:43], "big", signed=True) >= low_time:
            break
        if position + size_at(head) > end:
            break
        position += size_at(head)
    return position


def _is_unused(file: locations.File, position: int, end: int) -> bool:
    """Returns whether there are only zeros from a position on: preallocated space."""
    while position < end:
        data = file.read_at(position, min(CHUNK, end - position))
        if not data:
            return True
        if any(data):
            return False
        position += len(data)
    return True
