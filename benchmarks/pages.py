"""Makes the host back free memory before a measurement, so that no broker pays for it.

A hypervisor takes free pages back from its guests. The first write to such a page costs the guest several
microseconds of CPU, more than a broker needs for the records in it. A broker that has run for long does not
pay this: its new segments take the pages of old ones from a page cache that is full.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_TOUCHED_BYTES_MAX = 4 << 30  # more than any row writes in one repetition
_CGROUP = Path("/sys/fs/cgroup")


def touch_free_memory() -> None:
    """Writes to at most half of the free pages and gives them back.

    Without a hypervisor that takes pages back this only costs time.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    size = min(_TOUCHED_BYTES_MAX, min(_free_bytes(), _allowed_bytes()) // 2)
    if size > 0:
        mmap.mmap(-1, size, flags=flags).close()


def _free_bytes() -> int:
    """Returns the memory that nothing uses, not even the page cache; see proc(5)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0


def _allowed_bytes() -> int:
    """Returns what a container may still take; without a limit, as much as is touched at most, twice."""
    try:
        limit_bytes = int((_CGROUP / "memory.max").read_text())
        return limit_bytes - int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or the limit is "max"
        return 2 * _TOUCHED_BYTES_MAX
