"""A file that may be given another name while others read it.

Promises that whoever opens a file through its object opens this file, and never another one that has
taken its name since: compaction and retention rename the files of a segment (`.deleted`) while
readers still hold it, and the merged segment takes the old name at once.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Self

from tidelog.storage import files

if TYPE_CHECKING:
    from pathlib import Path


class NamedFile:
    """One file, whatever its name is now."""

    __slots__ = ("is_damage_logged", "is_gone", "lock", "path")

    def __init__(self, path: Path, lock: threading.RLock | None = None) -> None:
        """Names the file; nothing is touched. Files that are renamed together may share a lock."""
        self.path = path
        self.lock = threading.RLock() if lock is None else lock
        self.is_gone = False  # given up
        self.is_damage_logged = False  # one line is enough, however often the file is read

    @classmethod
    def of(cls, path: Path | Self) -> Self:
        """Returns a path as a file, and a file as it is."""
        return path if isinstance(path, cls) else cls(path)  # type: ignore[arg-type]

    def open(self, *, writable: bool = False) -> files.Descriptor:
        """Opens the file; a writable one is made where it does not exist.

        Raises OSError; FileNotFoundError where the file has been given up.
        """
        with self.lock:
            self._check_not_gone()
            return files.Descriptor(self.path, writable=writable)

    def read(self) -> bytes:
        """Returns all bytes of the file; raises OSError as `open` does."""
        with self.lock:
            self._check_not_gone()
            file = self.path.open("rb")
        with file:
            return file.read()

    def rename(self, target: Path) -> None:
        """Gives the file another name, by which it is opened from now on; raises OSError."""
        with self.lock:
            files.rename(self.path, target)
            self.path = target

    def give_up(self) -> None:
        """Never opens the file again: its directory goes, and another one may get its name."""
        with self.lock:
            self.is_gone = True

    def _check_not_gone(self) -> None:
        if self.is_gone:
            raise FileNotFoundError(errno.ENOENT, "the file has been given up", str(self.path))
