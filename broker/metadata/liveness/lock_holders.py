"""Finds the processes that hold the locks of SQLite on a metadata file, and whether they run.

A process that is stopped (SIGSTOP) while it holds one blocks the writes of all others for as
long as it is stopped; kill -9 frees the lock. SQLite locks bytes far behind the data of the file or,
with write-ahead logging, a few bytes of the file `-shm` (`os.h` and `wal.c` of SQLite). The kernel
lists all locks in /proc/locks (proc(5)); where there is no such file, no process is found. The files
themselves are not opened: closing them would release this process's own locks.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.lock_file import listed, user_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROCESSES = Path("/proc")
_FILE_LOCKS = range(0x4000_0000, 0x4000_0000 + 512)  # pending, reserved, and those of readers
_LOG_LOCKS = range(120, 123)  # of `-shm`: to write, to move the log into the file, to recover
_STOPPED = "T"  # by a signal; by a debugger it would be "t"


class SqliteLockHolder(NamedTuple):
    """A process that holds a lock; a shared one is that of a reader, for whom commits wait."""

    pid: int
    is_shared: bool


def holders(metadata: Path) -> list[SqliteLockHolder]:
    """Returns the processes that hold a lock on a metadata file, once for each lock."""
    with contextlib.suppress(OSError):
        if (log := metadata.with_name(metadata.name + "-shm")).exists():
            # Readers block nobody there.
            return [each for each in _locks(log, _LOG_LOCKS) if not each.is_shared]
        return list(_locks(metadata, _FILE_LOCKS))
    return []


def is_stopped(pid: int) -> bool:
    """Returns whether a process is there, and stopped by a signal."""
    try:
        status = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(") ")[2][:1] == _STOPPED


def describe_blocker(metadata: Path) -> str | None:
    """Returns which processes block writes to a metadata file, as a sentence; None if there are none.

    Names only stopped processes, if there are any: the others wait for them, too.
    """
    # Loaded here, because a supervisor needs none of it.
    from tidelog.broker.metadata.liveness.broker_lock import pids_of

    found = [each for each in holders(metadata) if each.pid != os.getpid()]
    pids = sorted({each.pid for each in found if is_stopped(each.pid)})
    verb = "is stopped and holds" if len(pids) == 1 else "are stopped and hold"
    if not pids:
        writers = {each.pid for each in found if not each.is_shared}
        pids = sorted(writers or {each.pid for each in found})
        verb = "holds" if len(pids) == 1 else "hold"
    if not pids:
        return None
    brokers = {pid: broker for broker, pid in pids_of(metadata.parent).items()}
    names = (
        f"broker {brokers[pid]} (process {pid})" if pid in brokers else _named(pid) for pid in pids
    )
    return f"{' and '.join(names)} {verb} the lock of the metadata"


def _named(pid: int) -> str:
    """Returns the name of a process that is no broker, with its user if that is another one."""
    with contextlib.suppress(OSError, ValueError):
        user = user_of(pid)
        if user != os.geteuid():
            return f"process {pid} of user {user}"
    return f"process {pid}"


def _locks(path: Path, places: range) -> Iterator[SqliteLockHolder]:
    """Yields the locks on some bytes of a file. Raises OSError."""
    for each in listed(path.stat()):
        if each.is_posix and each.start in places:
            yield SqliteLockHolder(each.pid, each.is_shared)
