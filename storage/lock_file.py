"""A file whose lock proves that a process works here, which no other user can hold.

flock needs no right to write: whoever can open a file can lock it. So a lock file is for its owner alone,
and one that others can open is replaced by a new one, since they may have it open still. A lock that only
processes of other users hold, who could not work here, keeps nobody out.

The file holds the id of the process, `123`, and that the process is about to end: `123 stopping`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.permissions import is_open_to_others

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_PROCESSES, _LOCKS = Path("/proc"), Path("/proc/locks")
_STOPPING = "stopping"
_ROOT = 0
_LONGEST = 64  # bytes that are read of a lock file


class KernelLock(NamedTuple):
    """A lock as the kernel lists it (proc(5))."""

    is_posix: bool
    is_shared: bool
    pid: int
    start: int  # the first byte that is locked


class Holder(NamedTuple):
    """Who holds a lock file, by what it has written there."""

    pid: int
    is_stopping: bool


class LockFile:
    """A lock file, locked for as long as this process has it open."""

    def __init__(self, path: Path, *, for_java: bool = False) -> None:
        """Locks the file, and makes it if need be.

        With `for_java` it has also the kind of lock that Java takes, which is void once the process
        closes any descriptor of the file. Raises BlockingIOError if another process holds it, and OSError.
        """
        self._for_java = for_java
        self._numbers: list[int] = []
        try:
            self._lock_at(path)
        except BaseException:
            self._close()
            raise
        self._write(b"%d\n" % os.getpid())

    def _lock_at(self, path: Path) -> None:
        """Locks the file at a path, and replaces it by a new one if others may hold it or can open it."""
        number = self._opened(path)
        own: set[int] = set()
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own.add(os.getpid())  # the lock that is listed for this process is this one
            self._lock(number)
        except BlockingIOError:
            if not _is_held_by_strangers(number, own):
                raise
            self._replace(path)
            return
        if is_open_to_others(os.fstat(number)):
            self._replace(path)
        elif not _is_at(path, number):  # another process has replaced it meanwhile
            raise BlockingIOError

    def _replace(self, path: Path) -> None:
        """Puts a new file into the place of the first; the lock of that one is kept, if it was had."""
        new = path.with_name(path.name + ".new")
        self._lock(self._opened(new))
        if not _is_at(path, self._numbers[0]):
            raise BlockingIOError
        new.rename(path)

    def _opened(self, path: Path) -> int:
        self._numbers.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return self._numbers[-1]

    def _lock(self, number: int) -> None:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._for_java:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except PermissionError:  # as POSIX allows to say that it is held
            raise BlockingIOError from None

    def note_stopping(self) -> None:
        """Notes that this process is about to end: who wants the lock may wait for it."""
        self._write(b"%d %s\n" % (os.getpid(), _STOPPING.encode()))

    def fileno(self) -> int:
        """Returns the descriptor of the locked file."""
        return self._numbers[-1]

    def release(self) -> None:
        """Unlocks the file."""
        self._write(b"")
        self._close()

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the disk may be full: the lock alone counts
            os.ftruncate(self.fileno(), 0)
            os.pwrite(self.fileno(), data, 0)

    def _close(self) -> None:
        while self._numbers:
            os.close(self._numbers.pop())


def holder_of(path: Path) -> Holder | None:
    """Returns who has written itself into a lock file; None if nobody has, or it cannot be read."""
    try:
        with path.open("rb") as file:
            pid, _, state = file.read(_LONGEST).decode("ascii", "replace").strip().partition(" ")
        return Holder(int(pid), state == _STOPPING)
    except (OSError, ValueError):
        return None


def is_locked(path: Path) -> bool:
    """Returns whether a process that may work here holds a lock file. Raises OSError if that is unknown.

    For a file without Java's kind of lock.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that processes that ask at the same time do not take each other for it.
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return not _is_held_by_strangers(number)
    finally:
        os.close(number)
    return False


def listed(file: os.stat_result) -> Iterator[KernelLock]:
    """Yields the locks on a file that processes which can be seen from here hold. Raises OSError.

    A device may have another number in the list than for stat(2), so the inode has to be enough.
    """
    for line in _LOCKS.read_text().splitlines():
        fields = line.split()
        if fields[1] == "->":  # it waits for a lock, and holds none
            continue
        kind, _, mode, pid, where, start = fields[1:7]
        if where.rpartition(":")[2] == str(file.st_ino):
            yield KernelLock(kind == "POSIX", mode == "READ", int(pid), int(start))


def _is_held_by_strangers(number: int, own: Container[int] = ()) -> bool:
    """Returns whether all who hold the locks of a file are of users who could not work here.

    The processes `own` do not count. One that has ended makes it unknown, which counts as no: whoever has
    inherited its descriptor holds the lock, and the kernel does not list them.
    """
    file = os.fstat(number)
    try:
        users = {user_of(each.pid) for each in listed(file) if each.pid not in own}
    except OSError:  # a process has just ended, or hides
        return False
    return bool(users) and users.isdisjoint({_ROOT, file.st_uid, os.geteuid()})


def user_of(pid: int) -> int:
    """Returns the effective user of a process, which it cannot hide. Raises OSError."""
    lines = (_PROCESSES / str(pid) / "status").read_text(errors="replace").splitlines()
    (users,) = (line.split()[1:] for line in lines if line.startswith("Uid:"))
    return int(users[1])


def _is_at(path: Path, number: int) -> bool:
    return os.path.samestat(path.stat(), os.fstat(number))
