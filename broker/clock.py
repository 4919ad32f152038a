"""The one place that asks the world what time it is.

Everything below takes `now_ms` as an argument; the broker hands down what its clock says. A time is
an int of milliseconds since the epoch, and may be negative.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day and measures spans."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch: what records are stamped with."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back: waits, idle time, durations."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to.

    Only the time of day is held; spans still follow the machine, because sockets live in real time.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The time last set."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()

    def set(self, now_ms: int) -> None:
        """Jump to a time, forwards or back."""
        self._now_ms = now_ms

    def step(self, step_ms: int) -> None:
        """Move by a span in milliseconds."""
        self._now_ms += step_ms
