"""The one place that asks the world what time it is.

Everything below takes `now_ms` as an argument; the broker hands down what its clock says. A time is
an int of milliseconds since the epoch, and may be negative. What the broker does now and then goes by
`steady_ms`, which follows the same clock and never goes back; sockets go by `monotonic_s`, which is the
machine's whatever the clock.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import NamedTuple, Protocol

# The two int64 below the first are marks in .appendtimes: "unknown" and "end".
FIRST_MS = -(2**63) + 2
LAST_MS = 2**63 - 1
_NO_TIMESTAMP = -1
_MOST_RATE = 1e9
# A clock that runs fast wakes who waits for it no oftener than this.
_LEAST_WAIT_S = 0.01


class Clock(Protocol):
    """Tells the time of day and measures spans."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch: what records are stamped with."""
        ...

    def steady_ms(self) -> int:
        """How much of this clock's time has passed; never goes back: intervals of the broker's work."""
        ...

    async def reached(self, steady_ms: int) -> None:
        """Wait until `steady_ms()` is so much."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of the machine: waits, idle time, durations."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Milliseconds from an arbitrary start."""
        return time.monotonic_ns() // 1_000_000

    async def reached(self, steady_ms: int) -> None:
        """Wait until `steady_ms()` is so much."""
        await asyncio.sleep((steady_ms - self.steady_ms()) / 1000)

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()


class ClockRangeError(ValueError):
    """A time or a rate that the clock cannot have; the text says which it can."""


class _Moment(NamedTuple):
    """What the clock showed when it was last touched, and how it has gone on since."""

    now_ms: int
    rate: float
    machine_ns: int
    steady_ms: int

    def passed_ms(self) -> int:
        """How much of the clock's time has passed since."""
        if not self.rate:
            return 0
        return int((time.monotonic_ns() - self.machine_ns) * self.rate) // 1_000_000


class ManualClock:
    """A clock in the hand: it stands still until it is set, stepped or told to run, at any rate.

    It can show every int64 but -1, which is "no time" in Kafka and passes as 0, and the two least,
    which are marks on disk. At the largest it stands still. Setting it back takes nothing from
    `steady_ms`, which counts how much it went forward. Spans of the machine (`monotonic_s`) go on,
    because sockets live in real time. Touched on one thread; any thread may ask it meanwhile.
    """

    def __init__(self, now_ms: int = 0) -> None:
        """Stand still at a time; raises ClockRangeError."""
        self._moment = _Moment(_checked(now_ms), 0, 0, 0)
        self._waits: set[asyncio.Future[None]] = set()

    @property
    def rate(self) -> float:
        """How many of its seconds pass in one of the machine's; 0 while it stands still."""
        return self._moment.rate

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as this clock has it."""
        moment = self._moment
        now_ms = min(moment.now_ms + moment.passed_ms(), LAST_MS)
        return 0 if now_ms == _NO_TIMESTAMP else now_ms

    def steady_ms(self) -> int:
        """How many milliseconds the clock has gone forward since it was made."""
        moment = self._moment
        return moment.steady_ms + moment.passed_ms()

    async def reached(self, steady_ms: int) -> None:
        """Wait until the clock has gone forward so far, in whatever way."""
        while (left_ms := steady_ms - self.steady_ms()) > 0:
            rate = self._moment.rate
            changed = asyncio.get_running_loop().create_future()
            self._waits.add(changed)
            try:
                wait_s = max(left_ms / rate / 1000, _LEAST_WAIT_S) if rate else None
                await asyncio.wait([changed], timeout=wait_s)
            finally:
                self._waits.discard(changed)

    def monotonic_s(self) -> float:
        """Seconds of the machine."""
        return time.monotonic()

    def set(self, now_ms: int) -> None:
        """Jump to a time, forwards or back, and go on as before; raises ClockRangeError."""
        self._touch(now_ms, self._moment.rate)

    def step(self, step_ms: int) -> None:
        """Move by a span, forwards or back, and go on as before; raises ClockRangeError."""
        self._touch(self.now_ms() + step_ms, self._moment.rate)

    def freeze(self, at_ms: int | None = None) -> None:
        """Stand still, now or at a time; raises ClockRangeError."""
        self._touch(self.now_ms() if at_ms is None else at_ms, 0)

    def run(self, rate: float = 1, from_ms: int | None = None) -> None:
        """Run at a rate, from now on or from a time; raises ClockRangeError."""
        if not 0 < rate <= _MOST_RATE or math.isnan(rate):
            raise ClockRangeError(f"rate {rate}: expected a number above 0, at most 1e9")
        self._touch(self.now_ms() if from_ms is None else from_ms, rate)

    def _touch(self, now_ms: int, rate: float) -> None:
        before_ms, steady_ms = self.now_ms(), self.steady_ms()
        steady_ms += max(0, _checked(now_ms) - before_ms)
        self._moment = _Moment(now_ms, rate, time.monotonic_ns(), steady_ms)
        for changed in self._waits:
            if not changed.done():
                changed.set_result(None)


def _checked(now_ms: int) -> int:
    if not FIRST_MS <= now_ms <= LAST_MS:
        raise ClockRangeError(
            f"{now_ms} ms: a clock shows times from {FIRST_MS} to {LAST_MS} ms since the epoch"
        )
    return now_ms
