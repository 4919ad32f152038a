"""Reading committed data: records below the last stable offset, and the aborted transactions in them.

Both come from one version of the log. Compaction drops aborted data together with its entries in the
index. So clients would drop committed data for an entry of another version, and show aborted data
without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api.fetch import AbortedTransaction
from tidelog.storage.log.slices import end_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.partitions.conversion import Records
    from tidelog.storage.log.partition import Partition


def read_committed(
    partition: Partition, bounds: tuple[int, int], read: Callable[[], Records], may_block: bool
) -> tuple[Records, list[AbortedTransaction]]:
    """Returns records that were read between two offsets, and the aborted transactions among them.

    `read` may be called again. Raises what it raises, and what `Reader.aborted_transactions` does.
    """
    state, reader = partition.state, partition.reader
    offset, upper_offset = bounds
    while True:
        version = state.version
        records = read()
        if not records.size:
            return records, []
        if version.has_no_aborts:
            if state.version is version:
                return records, []
            continue
        found = reader.aborted_transactions(offset, upper_offset, may_block=may_block)
        if found:  # what is beyond the records read would do no harm, but Kafka leaves it out
            end_offset = end_of(records.buffers, upper_offset)
            found = reader.aborted_transactions(offset, end_offset, may_block=may_block)
        if state.version is version:
            return records, [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in found
            ]
