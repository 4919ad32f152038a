"""Makes the host back free memory before a measurement, so that no broker pays for it.

A hypervisor takes free pages back from its guests. The first write to such a page costs the guest several
microseconds of CPU, more than a broker needs for the records in it. A broker that has run for long does not
pay this: its new segments take the pages of old ones from a page cache that is full.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_TOUCHED_BYTES_MAX = 4 << 30  # more than any row writes in one repetition
_CGROUP = Path("/sys/fs/cgroup")


def touch_free_memory() -> None:
    """Writes to at most half of the free pages and gives them back.

    Without a hypervisor that takes pages back this only costs time.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE  # which not even the page cache uses
    size = int(min(_TOUCHED_BYTES_MAX, free_bytes / 2, _allowed_bytes() / 2))
    if size > 0:
        mmap.mmap(-1, size, flags=flags).close()


def _allowed_bytes() -> float:
    """Returns how much memory the container may still take; infinity where it has no limit."""
    try:
        limit_bytes = int((_CGROUP / "memory.max").read_text())
        return limit_bytes - int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or the limit is "max"
        return float("inf")
