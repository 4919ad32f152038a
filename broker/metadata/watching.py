"""Watches of a store in this process: a commit notifies them, and they read the changes.

Between commits of this process a watch may also poll for commits of other processes to the same
file.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tidelog.broker.metadata.store import Change


_MOST_INTERVALS = 16


class Watches:
    """The watches of one store; all methods run on the event loop."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()
        self._closed = False

    def notify(self) -> None:
        """Wakes every watch after a commit."""
        for watcher in self._watchers:
            watcher.set()

    def close(self) -> None:
        """Ends every watch."""
        self._closed = True
        self.notify()

    async def watch(
        self,
        after: int,
        changes: Callable[[int], Awaitable[list[Change]]],
        interval_s: float | None = None,
        mark: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[list[Change]]:
        """Yields what `changes` returns after each revision, whenever it is not empty.

        Calls `changes` after every commit of this process, and when `mark` returns another value than
        before. Calls `mark` `interval_s` after a change, and then less and less often, down to every 16th
        interval, because each call wakes a process that may be idle. Without an interval only this
        process commits.
        """
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        pause_s = interval_s
        try:
            while not self._closed:
                watcher.clear()
                seen = mark()  # before the changes: a commit after it is seen the next time
                found = await changes(after)
                if found:
                    after, pause_s = found[-1].revision, interval_s
                    yield found
                    continue
                while not watcher.is_set() and mark() == seen:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await watcher.wait()
                    if interval_s is not None and pause_s is not None:
                        pause_s = min(2 * pause_s, _MOST_INTERVALS * interval_s)
        finally:
            self._watchers.discard(watcher)
