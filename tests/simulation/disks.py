"""Disks that fail in one way, or never wait, in place of the operating system's (see storage.files)."""

from __future__ import annotations

import errno
import threading

from tidelog.storage import files


class Unsynced(files.System):
    """Does what is asked, and leaves it to the system when it reaches the disk."""

    def sync(self, number):
        """Lose no time."""

    def sync_data(self, number):
        """Lose no time."""

    def sync_file_system(self, number):
        """Lose no time."""


class Disk(files.System):
    """Does what is asked; counts syncs; is full, or fails to sync, when told."""

    def __init__(self):
        self.syncs = 0
        self.failures = 0  # how many syncs fail; then all is said to be well, as systems say it
        self.room = None  # bytes that may still be written; None: plenty
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_syncing = threading.Event()

    def sync(self, number):
        self._sync(number)

    def sync_data(self, number):
        self._sync(number)

    def sync_file_system(self, number):
        self._sync(number)

    def _sync(self, number):
        self.syncs += 1
        self.is_syncing.set()
        assert self.may_sync.wait(200)
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")

    def write(self, number, buffers, position):
        if self.room is None:
            return super().write(number, buffers, position)
        data = b"".join(buffers)[: self.room]
        if not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)
        return super().write(number, (data,), position)
