"""Reads the records of a partition of an internal topic, batch by batch, in a thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records import batch as batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.protocol.records.layout import Batch, Record
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.coordinators")

_READ_BYTES = 1 << 20


def batches_of(
    partition: Partition,
    end_offset: int,
    is_wanted: Callable[[], bool] = lambda: True,
    *,
    skips_broken: bool = False,
) -> Iterator[tuple[Batch, Iterator[Record]]]:
    """Yields every batch below an offset, control batches too, with its records.

    Ends early once `is_wanted` returns False. Raises CorruptMessage for a batch that fails its checksum,
    unless it `skips_broken` ones, which are logged.
    """
    offset = partition.log_start_offset
    while offset < end_offset and is_wanted():
        fetched = partition.read(offset, _READ_BYTES, upper_offset=end_offset, minimum_one=True)
        before = offset
        for buffer in fetched.buffers:
            for batch in batches.scan(buffer):
                offset = batch.last_offset + 1
                try:
                    batches.verify(buffer, batch)
                except CorruptMessage as error:
                    _note_broken(partition, batch, error, is_skipped=skips_broken)
                    continue
                yield batch, batches.records(buffer, batch)
        if offset == before:
            break


def _note_broken(
    partition: Partition, batch: Batch, error: CorruptMessage, *, is_skipped: bool
) -> None:
    where = f"{partition.topic}-{partition.index}"
    offsets = f"{batch.base_offset} to {batch.last_offset}"
    if not is_skipped:
        raise CorruptMessage(f"{where}, offsets {offsets}: {error.message}") from error
    log.error(
        "coordinator skipped corrupt batch",
        extra={"log": where, "offsets": offsets, "reason": error.message},
    )
