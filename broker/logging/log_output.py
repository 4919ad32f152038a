"""Writes log lines to standard error without ever blocking the caller.

A line is written at once if that cannot block. Else it waits in memory with those that follow, up to
`WAITING_BYTES` in all, and a thread writes them. A line for which there is no room is dropped and counted;
the count is logged as soon as there is room again. If standard error is closed at the other end, because a
supervisor or another reader has ended, later lines are written to a file, up to `UNREAD_BYTES`; without a
file they are dropped.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAITING_BYTES: Final = 1 << 20
UNREAD_BYTES: Final = 16 << 20
_KEPT_BYTES = 1 << 20  # of an earlier process: a larger file is begun anew
_STANDARD_ERROR = 2


class LogOutput:
    """Writes lines to a descriptor; once that would block, in a thread."""

    def __init__(
        self,
        dropped_line: Callable[[int], bytes],
        descriptor: int = _STANDARD_ERROR,
        most_bytes: int = WAITING_BYTES,
    ) -> None:
        """`dropped_line` returns the line for a number of dropped lines."""
        self.unread_file: Path | None = None
        self._room_bytes: float = math.inf  # in the file, once it is written
        self._dropped_line = dropped_line
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._waiting_bytes = 0  # in `_lines`, and in what the thread is writing
        self._dropped = 0  # since the last line with their number
        self._thread: threading.Thread | None = None

    def put(self, line: bytes) -> None:
        """Writes or queues a line with its line feed, or drops it if the queue is full."""
        with self._changed:
            if not self._waiting_bytes and not self._dropped and self._can_write(line):
                self._write(line)
                return
            if self._waiting_bytes and self._waiting_bytes + len(line) > self._most_bytes:
                self._dropped += 1
                return
            if self._dropped:
                line = self._dropped_line(self._dropped) + line
                self._dropped = 0
            self._lines.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                # It may be stuck in a write when the process ends, so nobody waits for its end.
                self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> bool:
        """Waits until all lines are written, for a bounded time; returns whether they are."""
        with self._changed:
            if self._dropped and not self._waiting_bytes:
                self.put(b"")
            return self._changed.wait_for(lambda: self._waiting_bytes == 0, timeout_s)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            self._write(line)
            with self._changed:
                self._waiting_bytes -= len(line)
                self._changed.notify_all()

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # standard error is closed, and there is no file
            try:
                self._write_whole(line)
            except BrokenPipeError:
                self._switch_to_file()
                self._write_whole(line)

    def _write_whole(self, line: bytes) -> None:
        self._room_bytes -= len(line)
        while line and self._room_bytes >= 0:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:  # of a descriptor that does not block by itself
                self._poll().poll()

    def _switch_to_file(self) -> None:
        """Writes to the unread file from now on. Raises OSError."""
        if self.unread_file is None:
            raise FileNotFoundError
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.unread_file, flags, 0o600)
        self._room_bytes = UNREAD_BYTES
        if os.fstat(self._descriptor).st_size > _KEPT_BYTES:
            os.ftruncate(self._descriptor, 0)

    def _can_write(self, line: bytes) -> bool:
        """Returns whether a write does not block: a pipe that is ready accepts PIPE_BUF bytes."""
        if len(line) > select.PIPE_BUF:
            return False
        return any(events & select.POLLOUT for _, events in self._poll().poll(0))

    def _poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return poll
