"""A time at which to call a function, for one that is set much more often than it is reached.

Setting it costs no timer of the event loop: the timer of an earlier time finds, when it is due, that
there is a later one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.timer import Timer

if TYPE_CHECKING:
    from collections.abc import Callable


class Alarm:
    """Calls a function once, at the time that was set last. Times are of the loop's clock, in s."""

    __slots__ = ("_at_s", "_ring", "_timer")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at_s: float | None = None
        self._timer: Timer | None = None

    def set(self, at_s: float) -> None:
        """Calls at this time, and not at another."""
        self._at_s = at_s
        timer = self._timer
        if timer is not None:
            if timer.at_s <= at_s:
                return
            timer.cancel()
        self._timer = Timer(at_s, self._look)

    def set_sooner(self, at_s: float) -> None:
        """Calls at this time if that is sooner than what was set."""
        if self._at_s is None or at_s < self._at_s:
            self.set(at_s)

    def clear(self) -> None:
        """Unsets the time: nothing is called until `set` is called again."""
        self._at_s = None

    def close(self) -> None:
        """Unsets the time, and cancels the timer of the loop."""
        self._at_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        at_s = self._at_s
        if at_s is None:
            return
        if asyncio.get_running_loop().time() < at_s:
            self._timer = Timer(at_s, self._look)
        else:
            self._at_s = None
            self._ring()
