"""Reserves: a file in each log directory whose room is given up for what must work on a full disk.

What makes room has to write a little first: that a topic is deleted, where a log begins now,
checkpoints, and the files of a clean stop. When such a write finds no room, the reserve is
removed, and the write is tried once more. From then on no records are appended in the directory, or
they would take the room, until there is enough again and the reserve is back.

A reserve is no data. So it does not go through `files.System`, and is never synced. The methods are
for any thread.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

from storage import filenames

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers that mean a full disk, or a user's full quota."""

_ENOUGH = 2  # times its size must be free, or making the reserve again would fill the disk again

_PARTS = (1, 2, 4)  # which part of its size a start takes where there is no room for all of it

_log = logging.getLogger("tidelog.storage")
_lock = threading.Lock()
_reserves: dict[Path, Reserve] = {}  # by log directory, of all stores of this process


class Reserve:
    """The reserve of one log directory."""

    __slots__ = ("_file", "is_given_up", "size")

    def __init__(self, directory: Path, size: int) -> None:
        """Touches no file; `size` is in bytes, 0 for a directory without a reserve."""
        self._file, self.size = directory / filenames.RESERVE_FILE, size
        self.is_given_up = False
        """Whether its room was needed and is not back; meanwhile no records are appended."""

    def check(self) -> None:
        """Raises the OSError of a full disk while the reserve is given up."""
        if self.is_given_up:
            raise OSError(errno.ENOSPC, "what is left is for deletions")

    def make(self, size: int) -> bool:
        """Makes the file, if there is room for it; returns whether it is there."""
        try:
            number = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(number, 0, size)
            finally:
                os.close(number)
        except OSError as error:
            self._remove()
            _log.warning(
                "no room for a reserve",
                extra={"file": self._file, "bytes": size, "reason": error.strerror},
            )
            return False
        return True

    def give_up(self) -> bool:
        """Removes the file; returns False if there was none."""
        there = self._file.exists()
        self._remove()
        if there:
            self.is_given_up = True
            _log.error("disk full: reserve given up", extra={"file": self._file})
        return there

    def make_again(self) -> None:
        """Makes a reserve again that was given up, if that leaves as much free."""
        if (
            self.is_given_up
            and free_bytes(self._file.parent) >= _ENOUGH * self.size
            and self.make(self.size)
        ):
            self.is_given_up = False
            _log.info("room again: reserve made", extra={"file": self._file})

    def end(self) -> None:
        """Removes the file for a stop, which writes, too."""
        self._remove()

    def _remove(self) -> None:
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("reserve left", extra={"file": self._file, "reason": error.strerror})


_NONE = Reserve(Path(), 0)


def begin(directory: Path, size: int) -> None:
    """Makes the reserve of a log directory, a smaller one if there is less room; 0: makes none.

    The last stop may have left less room than its reserve had. Without any room there is none.
    """
    reserve = Reserve(directory, size)
    reserve.end()  # one of another size; or a killed process's, whose room this start may need
    if size:
        any(reserve.make(size // part) for part in _PARTS)
        with _lock:
            _reserves[directory] = reserve


def end(directory: Path) -> None:
    """Removes the reserve of a log directory."""
    with _lock:
        reserve = _reserves.pop(directory, None)
    if reserve is not None:
        reserve.end()


def of(directory: Path) -> Reserve:
    """Returns the reserve of a log directory; one of no size if there is none."""
    return _reserves.get(directory, _NONE)


def give_up(path: Path, error: OSError | None = None) -> bool:
    """Gives up the reserves on the disk of a file; returns whether that has made room.

    It does not if more is free than they have, as where the error of a full disk is injected.
    `error` is that of the write that failed; another one than that of a full disk gives up nothing.
    """
    if error is not None and error.errno not in FULL:
        return False
    has_quota = error is not None and error.errno == errno.EDQUOT
    given_up = False
    with _lock:
        for directory, reserve in _reserves.items():
            is_scarce = has_quota or free_bytes(directory) < reserve.size
            if is_scarce and _is_same_disk(directory, path.parent):
                given_up |= reserve.give_up()
    return given_up


def free_bytes(path: Path) -> int:
    """Returns how much may be written to a volume; 0 if that cannot be told."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return 0
    return volume.f_frsize * volume.f_bavail


def _is_same_disk(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False
