"""Closing or flushing many partitions, several at once: a failure of one holds up no other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from protocol.errors import KafkaStorageError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.log.partition import Partition

_MANY = 16  # partitions from which closing or flushing them is shared out
_SYNCS_AT_ONCE = 16


def each(
    work: Callable[[Partition], object], partitions: Sequence[Partition]
) -> dict[Partition, KafkaStorageError]:
    """Have every partition closed or flushed; return those that failed, and the errors.

    Many partitions go several at once: a file system makes durable together what is synced together.
    """
    failures: dict[Partition, KafkaStorageError] = {}

    def do(partition: Partition) -> None:
        try:
            work(partition)
        except UnknownTopicOrPartition:
            return  # deleted meanwhile
        except KafkaStorageError as error:  # the others are worked on all the same
            failures[partition] = error

    if len(partitions) < _MANY:
        for partition in partitions:
            do(partition)
    else:
        with ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="sync") as pool:
            for _ in pool.map(do, partitions):
                pass  # raises what nobody expected
    return failures
