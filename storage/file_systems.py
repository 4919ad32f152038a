"""Makes a whole file system durable in one call, where Linux reports what it could not write.

It reports lost pages once to each open file, from the opening of that file on, and since Linux 5.17 also
what the file system itself failed to write. On a layered file system it does not, so only those in
`REPORTING` are trusted.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

REPORTING: Final = frozenset({"ext4", "tmpfs", "xfs"})
_LINUX: Final = (5, 17)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def sync(number: int) -> None:
    """Syncs the file system of an open file; raises OSError, ENOTSUP if it does not report errors."""
    if not _reports(os.fstat(number).st_dev):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    import ctypes  # here because only a stop of many partitions needs it

    if ctypes.CDLL(None, use_errno=True).syncfs(number) != 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))


def _reports(device: int) -> bool:
    """Returns whether a device has one of the trusted file systems. Raises OSError."""
    system, release = _kernel()
    if system != "Linux" or _version(release) < _LINUX:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines():
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2] == name:
            return file_system.split()[0] in REPORTING
    return False


def _kernel() -> tuple[str, str]:
    names = os.uname()
    return names.sysname, names.release


def _version(release: str) -> tuple[int, ...]:
    """Returns the first two numbers of a release of the kernel."""
    numbers = release.split("-", maxsplit=1)[0].split(".")[:2]
    return tuple(int(each) for each in numbers if each.isdigit())
