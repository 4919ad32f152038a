"""Closes or flushes many partitions in parallel; one failure does not stop the others.

To close very many, the file systems of the log directories are made durable twice instead of some
ten files of each partition. One whose directory is a link to another file system is closed by itself
([decision 50](../../docs/decisions/0050-a-stop-syncs-the-file-system.md)).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from tidelog.storage.directory.log_directory import LogDirectory
    from tidelog.storage.log.partition import Partition

    Failures = dict[Partition, KafkaStorageError]

_MIN_PARALLEL = 16  # with fewer partitions, threads are not worth it
_AT_ONCE = 16
_MANY = 100  # partitions: others use the file system, too, and have their files synced with ours


def each(work: Callable[[Partition], object], partitions: Sequence[Partition]) -> Failures:
    """Runs `work` on every partition; returns the partitions that failed, with their errors.

    Many partitions are worked on in parallel, because file systems combine syncs that run at once.
    """
    failures: Failures = {}

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
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sync") as pool:
            for _ in pool.map(do, partitions):
                pass  # raises unexpected errors
    return failures


def close(partitions: Sequence[Partition], directories: Iterable[LogDirectory]) -> Failures:
    """Closes every partition durably; returns those that failed, with their errors."""
    if len(partitions) < _MANY:
        return each(lambda partition: partition.close(), partitions)
    begun: list[Partition] = []

    def begin(partition: Partition) -> None:
        if partition.flusher.begin_close(stages_times=True):
            begun.append(partition)

    failures = each(begin, partitions)
    synced = _sync(directories)
    failures |= each(partial(_end, synced=synced), begun)
    if synced and not _sync(directories):
        failures |= each(lambda partition: partition.flusher.sync_directory(), begun)
    return failures


def _end(partition: Partition, *, synced: Collection[int]) -> None:
    partition.flusher.end_close(is_synced=_is_on(synced, partition.directory))


def _sync(directories: Iterable[LogDirectory]) -> Collection[int]:
    """Makes the file systems durable; returns their devices, none if one failed or lost something."""
    devices: set[int] = set()
    try:
        for directory in directories:
            directory.sync_file_system()
            devices.add(directory.path.stat().st_dev)
    except OSError:
        return ()
    return devices


def _is_on(devices: Collection[int], path: Path) -> bool:
    """Returns whether a directory is on one of some file systems."""
    try:
        return path.stat().st_dev in devices
    except OSError:
        return False
