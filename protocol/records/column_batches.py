"""Encoding columns as format-2 batches.

`encode_batches` takes columns that `columns.append_set` filled, or any columns in that layout. It
writes format 2 as an idempotent or transactional producer does: base offset 0, consecutive
sequences, CreateTime. Every record gets the time in its column, which may be any int64. Only what
the rows hold is written: null stays null, empty stays empty, headers keep their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import pack_v2_header
from tidelog.protocol.records.compression import compress
from tidelog.protocol.records.layout import (
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    V2_HEADER_SIZE,
    Compression,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.protocol.records.column_buffers import ColumnBuffers

__all__ = ["BATCH_LIMIT", "NOBODY", "BatchProducer", "EncodedBatch", "encode_batches"]

BATCH_LIMIT = 512 * 1024
_SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap to 0 after the largest int32


class BatchProducer(NamedTuple):
    """The producer that a batch names; without an id a duplicate batch cannot be recognized."""

    id: int = NO_PRODUCER_ID
    epoch: int = -1
    is_transactional: bool = False


NOBODY = BatchProducer()


class EncodedBatch(NamedTuple):
    """One batch, and the rows in it: from `start` to before `end`."""

    data: bytes
    start: int
    end: int
    base_sequence: int


def encode_batches(
    columns: ColumnBuffers,
    start: int,
    end: int,
    *,
    producer: BatchProducer = NOBODY,
    base_sequence: int = -1,
    compression: int = Compression.NONE,
    limit: int = BATCH_LIMIT,
) -> Iterator[EncodedBatch]:
    """Yields batches of at most `limit` bytes before compression; one larger record is one batch.

    `base_sequence` is the sequence of the first row; it needs a producer with an id. Raises
    ValueError for inconsistent columns.
    """
    limit = max(1, limit - V2_HEADER_SIZE)
    attributes = compression | (TRANSACTIONAL_BIT if producer.is_transactional else 0)
    sequence = base_sequence
    while start < end:
        data, stop, base_timestamp, largest = kernels.encode_rows(columns, start, end, limit)
        payload = compress(compression, data, 2) if compression else data
        head = pack_v2_header(
            payload,
            base_offset=0,
            last_offset=stop - start - 1,
            leader_epoch=-1,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=largest,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            count=stop - start,
        )
        yield EncodedBatch(head + payload, start, stop, sequence)
        if sequence >= 0:
            sequence = (sequence + stop - start) & _SEQUENCE_MASK
        start = stop
