"""Files of deleted segments, which are kept under another name for file.delete.delay.ms.

A reader that has begun can finish, and an operator who has made a mistake has a little time. If the
clock steps back, the delay counts from then. The due times are not stored: after a crash the next
start removes the files at once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import files
from tidelog.storage.time.timestamp import at_latest, is_due

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class _Waiting(NamedTuple):
    """A file that waits for its removal."""

    due_ms: int
    delay_ms: int
    version: int  # versions of the log up to this number use it
    path: Path


class PendingDeletes:
    """The files of one partition that wait for their removal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []  # oldest version first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[Path], now_ms: int, delay_ms: int, version: int) -> None:
        """Removes these files after a delay; versions of the log up to this number use them."""
        due_ms = now_ms + delay_ms
        with self._lock:
            self._waiting += [_Waiting(due_ms, delay_ms, version, path) for path in paths]

    def remove_due(self, now_ms: int, oldest_held: int | None) -> None:
        """Removes the files that are due and in no version that is held. Raises OSError.

        `oldest_held` is the number of the oldest held version; None if none is held.
        """
        with self._lock:
            self._waiting = [
                each._replace(due_ms=at_latest(each.due_ms, now_ms, each.delay_ms))
                for each in self._waiting
            ]
            while self._waiting:
                oldest = self._waiting[0]
                if not is_due(oldest.due_ms, now_ms):
                    return
                if oldest_held is not None and oldest_held <= oldest.version:
                    return
                files.unlink(oldest.path)
                del self._waiting[0]
