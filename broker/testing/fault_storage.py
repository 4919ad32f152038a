"""Injects faults into storage: a full, failing or slow disk, for all files or for those of one partition."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from tidelog.broker.testing.faults import errno_of
from tidelog.storage import filenames
from tidelog.storage.files import System

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.broker.testing.faults import Fault, Faults, FaultTarget
    from tidelog.protocol.wire import Buffer


class FaultySystem(System):
    """The operating system as storage sees it, with faults applied.

    Must be installed before any file is opened, because it records the path of each descriptor then.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._paths: dict[int, Path] = {}

    def _strike(self, what: str, path: Path | None) -> None:
        """Applies the faults that strike; raises OSError."""
        for fault in self._faults.of_storage.get(what, ()):
            if path is not None and is_below(fault.target, path) and fault.strikes():
                _do(fault, path)

    def open(self, path: Path, flags: int) -> int:
        """Opens a file."""
        self._strike("open", path)
        number = super().open(path, flags)
        self._paths[number] = path
        return number

    def read(self, number: int, size: int, position: int) -> bytes:
        """Reads from a position."""
        self._strike("read", self._paths.get(number))
        return super().read(number, size, position)

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes at a position."""
        self._strike("write", self._paths.get(number))
        return super().write(number, buffers, position)

    def sync(self, number: int) -> None:
        """Makes a file durable."""
        self._strike("sync", self._paths.get(number))
        super().sync(number)

    def sync_data(self, number: int) -> None:
        """Makes the bytes and the size of a file durable."""
        self._strike("sync", self._paths.get(number))
        super().sync_data(number)

    def sync_file_system(self, number: int) -> None:
        """Makes a file system durable; raises ENOTSUP if there are faults of the sync of a file."""
        if self._faults.of_storage.get("sync"):
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        super().sync_file_system(number)

    def truncate(self, path: Path, size: int) -> None:
        """Truncates a file."""
        self._strike("truncate", path)
        super().truncate(path, size)

    def rename(self, path: Path, target: Path) -> None:
        """Renames a file or directory."""
        self._strike("rename", path)
        super().rename(path, target)

    def unlink(self, path: Path) -> None:
        """Removes a file."""
        self._strike("unlink", path)
        super().unlink(path)


def is_below(target: FaultTarget, path: Path) -> bool:
    """Returns whether a file or directory belongs to the target of a fault."""
    if target.log_dir is not None and target.log_dir not in path.parents:
        return False
    if target.topic is None:
        return True
    for name in (path.parent.name, path.name):
        key = filenames.parse_partition_directory(name)
        if key is not None and target.is_at(*key):
            return True
    return False


def _do(fault: Fault, path: Path) -> None:
    if fault.effect.error is None:
        fault.block()
        return
    number = errno_of(fault.effect.error)
    raise OSError(number, f"{os.strerror(number)} (injected, fault {fault.number})", str(path))
