"""Locks the log directories, and waits for a stopping broker that has locked them.

A broker marks its lock files as soon as it begins to stop: by a signal, or because its supervisor is gone. A
killed broker holds its locks for moments. A broker that starts meanwhile waits. If the other one keeps
serving, the directories are refused after a second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.storage.directory.log_directory import DirectoryInUse

if TYPE_CHECKING:
    from tidelog.broker.clock import Clock
    from tidelog.storage.directory.store import LogStore

log = logging.getLogger("tidelog.server")

_START_OF_STOP_S = 1.0  # how long a broker may take to notice that it is to stop
_STOP_S = 15.0  # how long one may take to stop: more than a child whose supervisor is gone has
_PAUSE_S = 0.05


async def lock_directories(store: LogStore, stop: asyncio.Event, clock: Clock) -> None:
    """Locks the directories of a store, after waiting for a stopping broker. Raises LogDirectoryError."""
    began_s = clock.monotonic_s()
    is_ending = is_logged = False
    while True:
        try:
            store.lock()
            break
        except DirectoryInUse as error:
            holder = error.holder
            if (
                holder is not None
            ):  # the file is empty just before it is unlocked, and after the next broker has locked it
                is_ending = holder.is_stopping
            timeout_s = _STOP_S if is_ending else _START_OF_STOP_S
            if stop.is_set() or clock.monotonic_s() - began_s >= timeout_s:
                raise
            if holder is not None and is_ending and not is_logged:
                is_logged = True
                where = {"directory": str(error.path), "pid": holder.pid}
                log.info("waiting for a stopping broker to unlock log directories", extra=where)
        await asyncio.sleep(_PAUSE_S)
    if stop.is_set():
        store.note_stopping()
