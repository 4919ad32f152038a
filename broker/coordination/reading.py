"""Reads the records of a partition of an internal topic, batch by batch, in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records import batch as batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.records.layout import Batch, Record
    from storage.log.partition import Partition

_READ_BYTES = 1 << 20


def end_of(partition: Partition, *, to_log_end: bool) -> int:
    """Returns the offset up to which the state of a coordinator is read.

    A leader that has just been elected reads to the log's end: its whole log becomes readable, and
    every record that was acknowledged is in it.
    """
    return partition.log_end_offset if to_log_end else partition.high_watermark


def batches_of(
    partition: Partition, end_offset: int, goes_on: Callable[[], bool] = lambda: True
) -> Iterator[tuple[Batch, Iterator[Record]]]:
    """Yields every batch below an offset, control batches too, with its records.

    Ends early once `goes_on` returns False.
    """
    offset = partition.log_start_offset
    while offset < end_offset and goes_on():
        fetched = partition.read(offset, _READ_BYTES, upper_offset=end_offset, minimum_one=True)
        before = offset
        for buffer in fetched.buffers:
            for batch in batches.scan(buffer):
                yield batch, batches.records(buffer, batch)
                offset = batch.last_offset + 1
        if offset == before:
            break
