"""How many bytes the log directories hold, found without opening a partition.

Meant for a thread, because the directory of every closed partition is listed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tidelog.protocol.topic_partition import TopicPartition


class DiskUsage(NamedTuple):
    """The bytes of each partition's log in one log directory, and the size of its volume."""

    path: Path
    sizes: Mapping[TopicPartition, int]
    total_bytes: int
    usable_bytes: int


def measure(
    path: Path, opened: Mapping[TopicPartition, int], wanted: Collection[TopicPartition] | None
) -> DiskUsage:
    """Returns the disk usage of a log directory, by wanted partition (None: all) in it.

    `opened` holds the log sizes of the open partitions. A partition that is deleted meanwhile is
    left out. Raises OSError.
    """
    volume = os.statvfs(path)
    sizes = {}
    for directory in path.iterdir():
        key = filenames.parse_partition_directory(directory.name)
        if key is None or (wanted is not None and key not in wanted):
            continue
        try:
            sizes[key] = opened[key] if key in opened else _log_bytes(directory)
        except FileNotFoundError:
            continue
    return DiskUsage(
        path, sizes, volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail
    )


def _log_bytes(directory: Path) -> int:
    with os.scandir(directory) as entries:
        return sum(
            entry.stat().st_size for entry in entries if entry.name.endswith(filenames.LOG_SUFFIX)
        )
