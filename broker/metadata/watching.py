"""Watches of a store in this process: told that something was committed, they read what it was.

Between commits of this process a watch may also look at an interval, for what other processes
committed to the same file.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from broker.metadata.store import Change


class Watches:
    """The watches of one store; all methods belong to the event loop."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()
        self._closed = False

    def notify(self) -> None:
        """Wake every watch: something was committed."""
        for watcher in self._watchers:
            watcher.set()

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self.notify()

    async def watch(
        self,
        after: int,
        changes: Callable[[int], Awaitable[list[Change]]],
        interval_s: float | None,
    ) -> AsyncIterator[list[Change]]:
        """Yield what `changes` returns after each revision seen, whenever there is something."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            while not self._closed:
                watcher.clear()
                found = await changes(after)
                if found:
                    after = found[-1].revision
                    yield found
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await watcher.wait()
        finally:
            self._watchers.discard(watcher)
