"""Reserves: a file in each log directory whose room is given up for what must work on a full disk.

What makes room has to write a little first: that a topic is deleted, where a log begins now,
checkpoints, and the files of a clean stop. When such a write finds no room, the reserve is
removed, and the write is tried once more. From then on no records are appended in the directory, or
they would take the room, until there is enough again and the reserve is back.

A reserve is no data. So it does not go through `files.System`, and is never synced. The methods are
for any thread: writes of several threads may find no room while another one makes the reserve again.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

from tidelog.storage import filenames

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers that mean a full disk, or a user's full quota."""

_ENOUGH = 2  # times its size must be free, or making the reserve again would fill the disk again

_VOLUME_PART = 8  # which part of its volume a reserve has at most, so that enough can be free again

_PARTS = (1, 2, 4)  # which part of its size a start takes where there is no room for all of it

_log = logging.getLogger("tidelog.storage")
_lock = threading.Lock()
_reserves: dict[Path, Reserve] = {}  # by log directory, of all stores of this process


class Reserve:
    """The reserve of one log directory."""

    __slots__ = ("_changing", "_file", "_has_ended", "is_given_up", "size")

    def __init__(self, directory: Path, size: int) -> None:
        """Touches no file; `size` is in bytes, 0 for a directory without a reserve."""
        self._file, self.size = directory / filenames.RESERVE_FILE, size
        self._changing = threading.Lock()  # held from what is decided to what is done
        self._has_ended = False
        self.is_given_up = False
        """Whether its room was needed and is not back; meanwhile no records are appended."""

    def check(self) -> None:
        """Raises the OSError of a full disk while the reserve is given up."""
        if self.is_given_up:
            raise OSError(errno.ENOSPC, "what is left is for deletions")

    def begin(self) -> None:
        """Makes the file, a smaller one if there is less room; none if there is no room at all.

        One is removed first that a killed process left: this start may need its room.
        """
        with self._changing:
            self._remove()
            any(self._make(self.size // part) for part in _PARTS if self.size)

    def give_up(self) -> bool:
        """Removes the file; returns whether its room is for the writes that found none.

        So it is also if another thread has removed it, perhaps since the write failed.
        """
        with self._changing:
            if self._file.exists():
                self._remove()
                self.is_given_up = True
                _log.error("disk full, reserve file removed", extra={"file": self._file})
            return self.is_given_up

    def make_again(self) -> None:
        """Makes a reserve again that was given up, if that leaves as much free."""
        with self._changing:
            if (
                self.is_given_up
                and not self._has_ended
                and free_bytes(self._file.parent) >= _ENOUGH * self.size
                and self._make(self.size)
            ):
                self.is_given_up = False
                _log.info("reserve file created", extra={"file": self._file})

    def end(self) -> None:
        """Removes the file for a stop, which writes, too; it is not made again."""
        with self._changing:
            self._has_ended = True
            self._remove()

    def _make(self, size: int) -> bool:
        """Makes the file, if there is room for it; returns whether it is there."""
        try:
            number = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(number, 0, size)
            finally:
                os.close(number)
        except OSError as error:
            self._remove()
            _log.warning(
                "reserve file not created",
                extra={"file": self._file, "bytes": size, "reason": error.strerror},
            )
            return False
        return True

    def _remove(self) -> None:
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            _log.warning(
                "reserve file not removed", extra={"file": self._file, "reason": error.strerror}
            )


_NONE = Reserve(Path(), 0)


def begin(directory: Path, size: int) -> None:
    """Makes the reserve of a log directory, a smaller one if there is less room; 0: makes none.

    It has at most an eighth of its volume: a small volume could never have as much free again as a
    large reserve asks for. The last stop may have left less room than its reserve had. Without any
    room there is none.
    """
    reserve = Reserve(directory, min(size, _volume_bytes(directory) // _VOLUME_PART))
    reserve.begin()
    if reserve.size:
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

    It does not if more is free than they have, as where the error of a full disk is injected, unless
    they were given up already: then another write has made that room.
    `error` is that of the write that failed; another one than that of a full disk gives up nothing.
    """
    if error is not None and error.errno not in FULL:
        return False
    has_quota = error is not None and error.errno == errno.EDQUOT
    has_room = False
    with _lock:
        for directory, reserve in _reserves.items():
            is_scarce = has_quota or free_bytes(directory) < reserve.size
            if (is_scarce or reserve.is_given_up) and _is_same_disk(directory, path.parent):
                has_room |= reserve.give_up()
    return has_room


def free_bytes(path: Path) -> int:
    """Returns how much may be written to a volume; 0 if that is not known."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return 0
    return volume.f_frsize * volume.f_bavail


def _volume_bytes(path: Path) -> int:
    volume = os.statvfs(path)
    return volume.f_frsize * volume.f_blocks


def _is_same_disk(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False
