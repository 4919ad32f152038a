"""The door to records as columns: one loop over a record set of any formats and codecs.

`append_set` fills `ColumnBuffers` (see `column_buffers`) with the records of every whole batch; it is
compiled where the kernels are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import BrokerError
from protocol.records import kernels
from protocol.records.batch import region_of
from protocol.records.column_buffers import (
    FULL,
    HEADERS,
    MORE,
    PAST,
    RECORDS,
    TIMES,
    BrokenBatch,
    ColumnBuffers,
    Wanted,
)

if TYPE_CHECKING:
    from protocol.records.layout import Batch, Buffer, Region

__all__ = [
    "FULL",
    "HEADERS",
    "MORE",
    "PAST",
    "RECORDS",
    "TIMES",
    "BrokenBatch",
    "ColumnBuffers",
    "Wanted",
    "append_set",
]


def append_set(
    data: Buffer, out: ColumnBuffers, wanted: Wanted, start: int = 0, end: int | None = None
) -> tuple[int, int]:
    """Append what is wanted of the batches in data[start:end]; return where it stopped, and why.

    That is the position of the first batch that was not looked at, and MORE, FULL or PAST. Raises
    BrokenBatch for a batch that cannot be read (the rows of those before it are there, none of its own),
    and ValueError where the columns would be too large for int32 offsets.
    """
    return kernels.append_set(data, start, len(data) if end is None else end, out, wanted, _unpack)


def _unpack(data: Buffer, batch: Batch) -> Region:
    """Say where the records of a compressed batch lie, unpacked."""
    try:
        return region_of(data, batch)
    except BrokerError as error:
        offset = batch.base_offset if batch.magic == 2 else batch.last_offset
        raise BrokenBatch(batch.position, offset, f"is broken: {error.message}") from error
