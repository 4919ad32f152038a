"""When Python's collector of garbage looks at all objects, and at which it need not look.

A full collection visits every object at once, on the event loop, and nothing else runs meanwhile. Two
things make that long, and nothing else in the broker governs the collector.

- The logs of ten thousand partitions take hundreds of milliseconds. Their objects stay for long. So what
  has grown is frozen, soon after it has: a frozen object is not visited. It goes when nobody refers to it,
  but not if it is part of a cycle. When many logs have gone, all is visited once.
- Twenty requests of 45,000 elements are millions of objects, which take 200 ms. They hold no cycles: their
  memory is free as soon as they are answered. So full collections wait until then. Where long requests
  never end, they are allowed for `ALLOWED_S` after each `HELD_S`, because cycles that others leave must be
  found in the end. Collections of young objects are short, and go on.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.directory.store import LogStore

GROWTH: Final = 250
"""So many more logs are frozen; each is about a hundred objects."""
LEAST_GONE: Final = 1_000
HELD_S: Final = 60.0
"""How long full collections wait at most."""
ALLOWED_S: Final = 1.0
"""How long they are allowed after that, while long requests are still under way."""
_INTERVAL_S = 0.5
_YOUNG = 1  # the generations that collections of little cost look at
_THRESHOLDS = gc.get_threshold()
_NEVER: Final = 1_000_000_000


class Collector:
    """The collector of a broker's process; what it is told of logs and of requests governs it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` reads the seconds of the machine."""
        self._now_s = now_s
        self._long = 0  # long requests that are under way
        self._since_s = 0.0
        self.is_held = False
        self._logs = 0  # open logs that are frozen
        self._most = 0  # open logs since everything was looked at

    # -- logs, which stay ------------------------------------------------------------------------

    def settle(self, open_logs: int) -> None:
        """Collects everything once, and freezes what is left."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._logs = self._most = open_logs

    async def watch(self, store: LogStore) -> None:
        """Looks now and then, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            self.look(store.open_count)

    def look(self, open_logs: int) -> None:
        """Freezes what has grown; collects everything when a quarter of the logs has gone, and many."""
        self._most = max(self._most, open_logs)
        if self._most - open_logs >= max(LEAST_GONE, self._most // 4):
            self.settle(open_logs)
        elif open_logs - self._logs >= GROWTH:
            gc.collect(_YOUNG)
            gc.freeze()
            self._logs = open_logs
        else:
            self._logs = min(self._logs, open_logs)

    # -- long requests, which end ----------------------------------------------------------------

    def hold(self) -> None:
        """Begins a long request."""
        self._long += 1
        if self._long == 1:
            self._since_s = self._now_s()
        self.update()

    def release(self) -> None:
        """Ends a long request."""
        self._long -= 1
        self.update()

    def update(self) -> None:
        """Holds full collections back, or allows them."""
        is_held = self._long > 0
        if is_held:
            is_held = (self._now_s() - self._since_s) % (HELD_S + ALLOWED_S) < HELD_S
        if is_held != self.is_held:
            self.is_held = is_held
            young, middle, full = _THRESHOLDS
            gc.set_threshold(young, middle, _NEVER if is_held else full)


class Hold:
    """One long request, from when it is known to be long until it ends."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._is_begun = False

    def begin(self) -> None:
        """Holds back full collections, if that has not been done."""
        if not self._is_begun:
            self._is_begun = True
            self._collector.hold()

    def __del__(self) -> None:
        """Ends what a coroutine that never began has left."""
        self.end()

    def end(self) -> None:
        """Ends what was begun."""
        if self._is_begun:
            self._is_begun = False
            self._collector.release()
