"""What the garbage collector need not look at: the objects of open logs, which stay for long.

A full collection looks at every object, and nothing else runs meanwhile: with the logs of ten thousand
partitions that takes hundreds of milliseconds. So what has grown is frozen, soon after it has: a frozen
object is not looked at. It goes when nobody refers to it, but not if it is part of a cycle. When many
logs have gone, all is looked at once.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.directory.store import LogStore

GROWTH: Final = 250
"""So many more logs are frozen; each is about a hundred objects."""
LEAST_GONE: Final = 1_000
_INTERVAL_S = 0.5
_YOUNG = 1  # the generations that collections of little cost look at


class Heap:
    """The garbage collector of a broker's process."""

    def __init__(self, open_logs: int) -> None:
        """Collects, and freezes what the start has made."""
        self._logs = open_logs
        self._most = open_logs  # since everything was looked at
        gc.collect()
        gc.freeze()

    async def watch(self, store: LogStore) -> None:
        """Looks now and then, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            self.look(store.open_count)

    def look(self, open_logs: int) -> None:
        """Freezes what has grown; collects everything when a quarter of the logs has gone, and many."""
        self._most = max(self._most, open_logs)
        if self._most - open_logs >= max(LEAST_GONE, self._most // 4):
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._logs = self._most = open_logs
        elif open_logs - self._logs >= GROWTH:
            gc.collect(_YOUNG)
            gc.freeze()
            self._logs = open_logs
        else:
            self._logs = min(self._logs, open_logs)
