"""The transactions that are open in the partitions of this broker, and those that are late.

A transaction is open in a partition from its first record there to its marker. Only logs whose
producers have been read count: that happens at the first write, or read of committed data.
Functions here may run in any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.storage.log.partition import Partition


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition; `idle_ms` is how long ago its last append there was."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    idle_ms: int


def opened(partitions: Iterable[Partition], now_ms: int) -> Iterator[OpenTransaction]:
    """Yields the open transactions of partitions."""
    for partition in partitions:
        state = partition.state
        producers = state.producers
        if producers is None or state.unstable is None:
            continue
        for each in producers:  # those of now: appends continue meanwhile
            start_offset = each.transaction_first_offset
            if each.has_transaction and start_offset >= 0:
                yield OpenTransaction(
                    partition.topic,
                    partition.index,
                    start_offset,
                    each.producer_id,
                    each.epoch,
                    max(now_ms - each.last_append_time_ms, 0),
                )


def late(partitions: Iterable[Partition], now_ms: int, longest_ms: int) -> list[OpenTransaction]:
    """Returns the open transactions that were idle for longer than any transaction may be open."""
    return [each for each in opened(partitions, now_ms) if each.idle_ms > longest_ms]
