"""Keeps the pauses of Python's garbage collector short.

A full collection visits every object at once, and nothing else runs meanwhile: 200 ms with the logs and the
committed offsets of 24,000 partitions. Two things keep collections short.

- Collections come often, when little is new. What a full one has visited is frozen if that took long: later
  ones visit only what is younger.
- The objects of long requests are many and hold no cycles, so there are no full collections while such
  requests are under way. What has become old meanwhile is frozen unseen, if it is much.

A frozen object is freed as any other when nobody refers to it any more, but not if it is part of a cycle.
So logs, connections, requests and scrapes leave none behind. For the cycles of others everything is visited
again every ten minutes if that is short, and else once an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG_S: Final = 0.004
"""What a full collection of this time has visited is frozen."""
THRESHOLDS: Final = 700, 4, 1
"""The arguments of `gc.set_threshold`: Python's defaults are 700, 10 and 10."""
LOOK_S: Final = 600.0
FEW: Final = 50_000
"""So many frozen objects are visited in some 15 ms."""
RARELY_S: Final = 3600.0
"""After this time more are visited, too."""
_MIDDLE, _FULL = 1, 2  # generations
_NEVER: Final = 1_000_000_000


class Collector:
    """Controls Python's garbage collector; for one broker in a process."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` reads the seconds of the machine."""
        self._now_s = now_s
        self._long = 0  # long requests that are under way
        self._began_s = 0.0  # when the full collection began that is under way
        self._is_governed = False
        self._old_before = 0  # middle collections between the last full one and a long request
        self._has_frozen = False  # something, since everything was visited
        self._visited_s = 0.0  # when that was

    @property
    def is_held(self) -> bool:
        """Whether full collections wait."""
        return self._long > 0

    @contextlib.contextmanager
    def governing(self) -> Iterator[None]:
        """Collects and freezes everything, and keeps collections short until the context ends."""
        self._visit_all()
        before = gc.get_threshold()
        gc.callbacks.append(self._collecting)
        self._is_governed = True
        self._allow()
        try:
            yield
        finally:
            self._is_governed = False
            gc.callbacks.remove(self._collecting)
            gc.set_threshold(*before)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        """Is called by Python before and after each collection, in whichever thread has begun it."""
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began_s = self._now_s()
        elif self._now_s() - self._began_s >= LONG_S:
            gc.freeze()
            self._has_frozen = True

    def _visit_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        _freeze()
        self._has_frozen, self._visited_s = False, self._now_s()

    async def watch(self) -> None:
        """Calls `look` every `LOOK_S`, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Visits everything again if something was frozen, and if that is short or has not been for long."""
        if not self._has_frozen or self.is_held:
            return
        if gc.get_freeze_count() <= FEW or self._now_s() - self._visited_s >= RARELY_S:
            self._visit_all()

    def _allow(self) -> None:
        if self._is_governed:
            young, middle, full = THRESHOLDS
            gc.set_threshold(young, middle, _NEVER if self.is_held else full)

    # -- long requests ---------------------------------------------------------------------------

    def hold(self) -> None:
        """Begins a long request."""
        self._long += 1
        if self._long == 1:
            self._old_before = gc.get_count()[_FULL]
            self._allow()

    def release(self) -> None:
        """Ends a long request."""
        self._long -= 1
        if self._long or not self._is_governed:
            return
        if gc.get_count()[_FULL] - self._old_before > THRESHOLDS[_FULL]:
            gc.collect(_MIDDLE)
            _freeze()
            self._has_frozen = True
        self._allow()


def _freeze() -> None:
    """Freezes all objects, and resets Python's count of them, which would delay full collections."""
    gc.freeze()
    gc.collect()  # of nothing


def forget(error: BaseException | None) -> None:
    """Clears the local variables that an error and its contexts hold by their tracebacks.

    The variables often refer to the error, by a future: a cycle, which only a full collection would free.
    """
    while error is not None:
        clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__context__


class Hold:
    """One long request, from when it is known to be long until it ends."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.is_begun = False

    def begin(self) -> None:
        """Holds back full collections, if that has not been done."""
        if not self.is_begun:
            self.is_begun = True
            self._collector.hold()

    def __del__(self) -> None:
        """Ends the hold of a coroutine that never started."""
        self.end()

    def end(self) -> None:
        """Allows full collections again, if they were held back."""
        if self.is_begun:
            self.is_begun = False
            self._collector.release()
