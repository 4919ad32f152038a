"""The lock by which one process at a time is the broker with an id, as long as it lives.

The kernel releases the lock when its process ends, by kill -9 too. Descriptors are closed in
programs that the process starts (PEP 446); a fork that starts no other program would keep the
lock. No other user can hold it (`storage/lock_file.py`). The lock alone does not make a write to the
metadata safe: that takes a comparison of revisions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.metadata.store import MetadataError
from tidelog.storage.lock_file import LockFile, holder_of, is_locked

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX, _SUFFIX = "broker-", ".lock"
# A peer that asks whether the lock is held has it for a moment itself.
_TRIES, _PAUSE_S = 100, 0.01


class BrokerLock:
    """The lock on a broker's id in the directory of the metadata."""

    def __init__(self, directory: Path, broker_id: int) -> None:
        """Acquires nothing yet."""
        self.directory, self.broker_id = directory, broker_id
        self._path = _path(directory, broker_id)
        self._lock: LockFile | None = None

    async def acquire(self) -> None:
        """Acquires the lock. Raises MetadataError if another process holds it for a second."""
        try:
            self.directory.mkdir(0o700, parents=True, exist_ok=True)
            self._lock = await self._locked()
        except OSError as error:
            raise MetadataError(f"cannot lock {self._path}: {error.strerror}") from None

    def release(self) -> None:
        """Releases the lock, if it was acquired."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _locked(self) -> LockFile:
        for _ in range(_TRIES):
            try:
                return LockFile(self._path)
            except BlockingIOError:
                await asyncio.sleep(_PAUSE_S)
        holder = holder_of(self._path)
        who = "another process" if holder is None else f"process {holder.pid}"
        raise MetadataError(f"broker {self.broker_id} is running already: {who} holds {self._path}")


def is_held(directory: Path, broker_id: int) -> bool:
    """Returns whether a process holds the lock of a broker's id. Raises OSError if that is unknown."""
    return is_locked(_path(directory, broker_id))


def known_ids(directory: Path) -> list[int]:
    """Returns the ids that have a lock file, held or not, in order."""
    names = (path.name for path in directory.glob(f"{_PREFIX}*{_SUFFIX}"))
    written = (name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in names)
    return sorted(int(each) for each in written if each.isascii() and each.isdigit())


def pids_of(directory: Path) -> dict[int, int]:
    """Returns the process id in each lock file, by broker id."""
    holders = {each: holder_of(_path(directory, each)) for each in known_ids(directory)}
    return {each: holder.pid for each, holder in holders.items() if holder is not None}


def _path(directory: Path, broker_id: int) -> Path:
    return directory / f"{_PREFIX}{broker_id}{_SUFFIX}"
