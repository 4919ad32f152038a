"""Measures the lag of the event loop: how late a timer on it fires.

No request should hold the loop for more than some 20 ms (broker/network/scheduler.py). The timer is set for
`_BUSY_S` while requests are served, and for `_QUIET_S` while there are none, so that an idle broker needs no
CPU for it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds."""
_BUSY_S = 0.02
_QUIET_S = 0.5
_SPAN_S = 60.0


class LoopLag:
    """A histogram of lags, and the longest of the last minute or two."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._longest_s = [0.0, 0.0]  # of the span before this one, and of this one
        self._since_s = 0.0

    @property
    def longest_s(self) -> float:
        """The longest lag since the span before this one began."""
        return max(self._longest_s)

    def note(self, lag_s: float, now_s: float) -> None:
        """Counts a lag, in s, that was measured at a time of the loop."""
        self.counts[bisect_left(BOUNDS_S, lag_s)] += 1
        self.sum_s += lag_s
        if now_s - self._since_s > _SPAN_S:
            self._longest_s = [self._longest_s[1], 0.0]
            self._since_s = now_s
        self._longest_s[1] = max(self._longest_s[1], lag_s)

    async def run(self, served: Callable[[], int]) -> None:
        """Measures until cancelled; `served` returns the number of requests so far."""
        loop = asyncio.get_running_loop()
        before = -1
        while True:
            count = served()
            wait_s = _QUIET_S if count == before else _BUSY_S
            before = count
            due_s = loop.time() + wait_s
            await asyncio.sleep(wait_s)
            now_s = loop.time()
            self.note(max(0.0, now_s - due_s), now_s)
