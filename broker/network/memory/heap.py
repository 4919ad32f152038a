"""Sets how much freed memory the C library keeps for the next allocations of a broker's process.

glibc returns the end of its heap to the system when 128 KB of it are free, and allocates blocks of that size
from the system each time, until it adapts. The pages of a frame of a megabyte are then new for each request,
and the system fills each page with zeros first. So more is kept: at most `KEPT_BYTES` for each heap. Larger
blocks are returned to the system as soon as they are free, and leave no gaps in the heap.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT_BYTES: Final = 4 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Sets both thresholds of glibc to `KEPT_BYTES`; returns whether they are set.

    They stay as they are where the environment sets one of them or tunes glibc (`_SETTINGS`), and where
    the C library is another one.
    """
    if any(name in environment for name in _SETTINGS):
        return False
    import ctypes  # here because only a process that serves needs it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, KEPT_BYTES) == 1 for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))
