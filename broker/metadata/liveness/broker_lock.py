"""The lock by which one process at a time is the broker with an id, as long as it lives.

The kernel gives an flock back when its process ends, by kill -9 too. Descriptors are closed in
programs that the process starts (PEP 446); a fork that goes on without starting one would keep the
lock. The lock is no proof for what its holder writes to the metadata: that takes a comparison of
revisions.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from broker.metadata.store import MetadataError

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX, _SUFFIX = "broker-", ".lock"
# A peer that asks whether the lock is held has it for a moment itself.
_TRIES, _PAUSE_S = 100, 0.01


class BrokerLock:
    """The lock on a broker's id in the directory of the metadata."""

    def __init__(self, directory: Path, broker_id: int) -> None:
        """Takes nothing yet."""
        self.directory, self.broker_id = directory, broker_id
        self._path = _path(directory, broker_id)
        self._descriptor = -1

    async def take(self) -> None:
        """Takes the lock. Raises MetadataError if another process has it for a second."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise MetadataError(f"cannot lock {self._path}: {error.strerror}") from None
        try:
            await self._lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock back, if it was taken."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _lock(self, descriptor: int) -> None:
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_PAUSE_S)
            except OSError as error:
                raise MetadataError(f"cannot lock {self._path}: {error.strerror}") from None
            else:
                return
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        raise MetadataError(
            f"broker {self.broker_id} is running already: process {holder} holds {self._path}"
        )


def is_held(directory: Path, broker_id: int) -> bool:
    """Returns whether a process is the broker with this id. Raises OSError if that is unknown."""
    try:
        descriptor = os.open(_path(directory, broker_id), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that peers that ask at the same time do not take each other for it.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def known_ids(directory: Path) -> list[int]:
    """Returns the ids that have a lock file, held or not, in order."""
    names = (path.name for path in directory.glob(f"{_PREFIX}*{_SUFFIX}"))
    written = (name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in names)
    return sorted(int(each) for each in written if each.isascii() and each.isdigit())


def pids_of(directory: Path) -> dict[int, int]:
    """Returns the process that has written itself into each lock file, by broker id."""
    found = {}
    for broker_id in known_ids(directory):
        with contextlib.suppress(OSError, ValueError):  # nobody has, or a new one is about to
            found[broker_id] = int(_path(directory, broker_id).read_bytes())
    return found


def _path(directory: Path, broker_id: int) -> Path:
    return directory / f"{_PREFIX}{broker_id}{_SUFFIX}"
