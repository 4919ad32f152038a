"""Closes or flushes many partitions in parallel; one failure does not stop the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from protocol.errors import KafkaStorageError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.log.partition import Partition

_MIN_PARALLEL = 16  # with fewer partitions, threads are not worth it
_SYNCS_AT_ONCE = 16


def each(
    work: Callable[[Partition], object], partitions: Sequence[Partition]
) -> dict[Partition, KafkaStorageError]:
    """Runs `work` on every partition; returns the partitions that failed, with their errors.

    Many partitions are worked on in parallel, because file systems combine syncs that run at once.
    """
    failures: dict[Partition, KafkaStorageError] = {}

    def do(partition: Partition) -> None:
        try:
            work(partition)
        except UnknownTopicOrPartition:
            return  # deleted meanwhile
        except KafkaStorageError as error:
            failures[partition] = error

    if len(partitions) < _MIN_PARALLEL:
        for partition in partitions:
            do(partition)
    else:
        with ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="sync") as pool:
            for _ in pool.map(do, partitions):
                pass  # raises unexpected errors
    return failures
