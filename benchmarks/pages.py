"""Free memory that the host of a virtual machine has backed, so that no broker pays for the machine.

A hypervisor takes free pages back from its guests. The first write to such a page costs the guest several
microseconds of CPU, more than a broker needs for the records in it. A broker that has run for long does not
pay this: its new segments take the pages of old ones from a page cache that is full.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_TOUCHED_BYTES_MAX = 4 << 30  # more than any row writes in one repetition


def touch_free_memory() -> None:
    """Writes to half of the free pages at most, and gives them back; changes nothing without a hypervisor."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    size = min(_TOUCHED_BYTES_MAX, _free_bytes() // 2)
    if size:
        mmap.mmap(-1, size, flags=flags).close()


def _free_bytes() -> int:
    """Returns the memory that nothing uses, not even the page cache; see proc(5)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0
