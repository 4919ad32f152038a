"""What the log directories hold, in bytes, without opening a partition.

Meant for a thread: a directory is listed for every partition that is closed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from storage import filenames

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    Key = tuple[str, int]


class DiskUsage(NamedTuple):
    """One log directory: the bytes of each partition's log there, and of the volume it is on."""

    path: Path
    sizes: Mapping[Key, int]
    total_bytes: int
    usable_bytes: int


def measure(path: Path, opened: Mapping[Key, int], wanted: Collection[Key] | None) -> DiskUsage:
    """Weigh a log directory: those of the partitions wanted (None: all) that are there.

    `opened` are the sizes of logs that are open. A partition that goes meanwhile is left out. Raises OSError.
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
