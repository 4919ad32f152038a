"""Locks the log directories, and waits for a broker that has them and is about to end.

A broker writes into its lock files that it is about to end, as soon as it is to stop: by a signal, or
because its supervisor is gone. One that was killed still has its locks for moments. Whoever starts
meanwhile waits. From a broker that goes on serving it is refused the directories after a second.
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

_NOTICES_S = 1.0  # how long a broker may take to notice that it is to stop
_ENDS_S = 15.0  # how long one may take to stop: more than a child whose supervisor is gone has
_PAUSE_S = 0.05


async def lock_directories(store: LogStore, stop: asyncio.Event, clock: Clock) -> None:
    """Locks the directories of a store, once an ending broker has left them. Raises LogDirectoryError."""
    began_s = clock.monotonic_s()
    is_ending = is_told = False
    while True:
        try:
            store.lock()
            break
        except DirectoryInUse as error:
            holder = error.holder
            if (
                holder is not None
            ):  # the file is empty just before one lets go, and after the next came
                is_ending = holder.is_stopping
            patience_s = _ENDS_S if is_ending else _NOTICES_S
            if stop.is_set() or clock.monotonic_s() - began_s >= patience_s:
                raise
            if holder is not None and is_ending and not is_told:
                is_told = True
                where = {"directory": str(error.path), "pid": holder.pid}
                log.info("waiting for a stopping broker to unlock log directories", extra=where)
        await asyncio.sleep(_PAUSE_S)
    if stop.is_set():
        store.note_stopping()
