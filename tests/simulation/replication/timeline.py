"""Virtual time: events in the order of their times, and everything random by one seed.

Nothing here depends on the machine: no clock, no hash of a text, no identity of an object. The same
seed gives the same events, the same order, and the same trace.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000  # of true time


class Timeline:
    """A heap of events. Events of one millisecond come in a random order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.steps = 0
        self.trace: list[tuple[Any, ...]] = []
        self._events: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay_ms: int, call: Callable[..., None], *args: Any) -> None:
        """Calls something after a delay in milliseconds."""
        self._count += 1
        entry = (self.now_ms + delay_ms, self.random.random(), self._count, call, args)
        heapq.heappush(self._events, entry)

    def every(self, interval_ms: int, call: Callable[[], None]) -> None:
        """Calls something again and again, at intervals that differ a little."""

        def again() -> None:
            call()
            self.after(self.random.randint(interval_ms // 2, interval_ms), again)

        self.after(self.random.randint(0, interval_ms), again)

    def say(self, *what: Any) -> None:
        """Notes what happened; the text is made only if somebody reads it."""
        self.trace.append((self.now_ms, *what))

    def run_until(self, until_ms: int, after_each: Callable[[], None]) -> None:
        """Plays the events up to a time, and calls `after_each` after each of them."""
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, _, call, args = heapq.heappop(self._events)
            call(*args)
            self.steps += 1
            after_each()
        self.now_ms = until_ms

    def text(self, last: int | None = None) -> list[str]:
        """Returns the trace as lines; with `last`, only so many from the end."""
        lines = self.trace if last is None else self.trace[-last:]
        return [f"{line[0]:>7} {' '.join(map(str, line[1:]))}" for line in lines]

    def digest(self) -> str:
        """Returns a hash of the whole trace."""
        return hashlib.sha256("\n".join(self.text()).encode()).hexdigest()
