"""Files of deleted segments, which are kept under another name for file.delete.delay.ms.

A reader that has begun can finish, and an operator who has made a mistake has a little time. The
due times are not stored: after a crash the next start removes the files at once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from storage import files
from storage.time.timestamp import is_due

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class PendingDeletes:
    """The files of one partition that wait for their removal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, int, Path]] = []  # due, version, path; oldest version first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[Path], due_ms: int, version: int) -> None:
        """Removes these files from `due_ms` on; versions of the log up to this number use them."""
        with self._lock:
            self._waiting += [(due_ms, version, path) for path in paths]

    def remove_due(self, now_ms: int, oldest_held: int | None) -> None:
        """Removes the files that are due and in no version that is held. Raises OSError.

        `oldest_held` is the number of the oldest held version; None if none is held.
        """
        with self._lock:
            while self._waiting:
                due_ms, version, path = self._waiting[0]
                if not is_due(due_ms, now_ms):
                    return
                if oldest_held is not None and oldest_held <= version:
                    return
                files.unlink(path)
                del self._waiting[0]
