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

    from broker.metadata.store import Change


class Watches:
    """The watches of one store; all methods run on the event loop."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()
        self._closed = False

    def notify(self) -> None:
        """Wake every watch after a commit."""
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
        interval_s: float | None = None,
        may_have_changed: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[list[Change]]:
        """Yield what `changes` returns after each revision, whenever it is not empty.

        It is asked after every commit of this process, and every `interval_s` if `may_have_changed`
        says that another process may have committed.
        """
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
                while not watcher.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(interval_s):
                            await watcher.wait()
                    if may_have_changed():
                        break
        finally:
            self._watchers.discard(watcher)
