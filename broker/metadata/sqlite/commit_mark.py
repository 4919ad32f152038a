"""Detects commits of any process to a SQLite file, without a transaction on it.

A commit changes the counter in the header of the file or, with write-ahead logging, the header of
the index of that log, which all processes share in `-shm`. Reading both is two system calls.

The descriptors stay open until the database is closed: POSIX releases all locks of a process on a file,
those of SQLite too, when the process closes any of its descriptors for that file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_COUNTER = (4, 24)  # size and position in the header of the file
_INDEX_HEADER = (48, 0)  # in `-shm`


class CommitMark:
    """The bytes of one SQLite file that every commit changes."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet."""
        self._parts = (
            _Part(path, *_COUNTER),
            _Part(path.with_name(path.name + "-shm"), *_INDEX_HEADER),
        )

    def read(self) -> tuple[bytes, ...]:
        """Returns bytes that differ after every commit."""
        return tuple(part.read() for part in self._parts)

    def close(self) -> None:
        """Closes the files; the database must be closed already."""
        for part in self._parts:
            part.close()


class _Part:
    """A few bytes of a file that may not exist yet."""

    def __init__(self, path: Path, size: int, position: int) -> None:
        self._path, self._size, self._position = path, size, position
        self._number = -1

    def read(self) -> bytes:
        """Returns the bytes; none if they cannot be read."""
        try:
            if self._number < 0:
                self._number = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._number, self._size, self._position)
        except OSError:
            return b""

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
            self._number = -1
