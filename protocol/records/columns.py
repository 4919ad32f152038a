"""Reading records as columns: one loop over a record set of any formats and codecs.

`append_set` fills `ColumnBuffers` (see `column_buffers`) with the records of every whole batch. Its
loop is compiled if the kernels are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import BrokerError
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import region_of
from tidelog.protocol.records.column_buffers import (
    FULL,
    HEADERS,
    MORE,
    PAST,
    RECORDS,
    TIMES,
    BrokenBatch,
    ColumnBuffers,
    RecordSelection,
)

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Batch, Region
    from tidelog.protocol.wire import Buffer

__all__ = [
    "FULL",
    "HEADERS",
    "MORE",
    "PAST",
    "RECORDS",
    "TIMES",
    "BrokenBatch",
    "ColumnBuffers",
    "RecordSelection",
    "append_set",
]


def append_set(
    data: Buffer,
    out: ColumnBuffers,
    wanted: RecordSelection,
    start: int = 0,
    end: int | None = None,
) -> tuple[int, int]:
    """Appends the wanted records of data[start:end]; returns where and why it stopped.

    Returns the position of the first batch that was not read, and MORE, FULL or PAST. Raises
    BrokenBatch for a batch that cannot be read: the rows of the batches before it are appended,
    none of its own. Raises ValueError if the columns would be too large for int32 offsets.
    """
    return kernels.append_set(data, start, len(data) if end is None else end, out, wanted, _unpack)


def _unpack(data: Buffer, batch: Batch) -> Region:
    """Returns the region of a compressed batch's records, decompressed."""
    try:
        return region_of(data, batch)
    except BrokerError as error:
        offset = batch.base_offset if batch.magic == 2 else batch.last_offset
        raise BrokenBatch(batch.position, offset, f"is broken: {error.message}") from error
