"""The only code that reads the time of the machine.

Everything below gets `now_ms` as an argument; the broker passes the time of its clock. A time is
an int of milliseconds since the epoch, and may be negative. Work at intervals uses `steady_ms`,
which runs with the same clock and never goes back. Sockets use `monotonic_s`, which is always
the machine's.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.corrections import TOLERANCE_MS
from tidelog.storage.time.trusted_clock import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

# The two smallest int64 are markers in .appendtimes: "unknown" and "end".
FIRST_MS = -(2**63) + 2
LAST_MS = 2**63 - 1
_MOST_RATE = 1e9
# However fast the clock runs, waiting tasks are woken no more often than this.
_LEAST_WAIT_S = 0.01
# CLOCK_MONOTONIC where the system has no clock that counts while the machine is suspended.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MANUAL = "manual-"


@functools.cache
def machine_boot_id() -> str:
    """Returns the id of this boot of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@functools.cache
def _boot_id() -> str:
    """Returns the machine's boot id, or one of this process where the system has none."""
    return machine_boot_id() or f"process-{uuid.uuid4()}"


def is_manual(reading: Reading) -> bool:
    """Returns whether a reading is of a manual clock."""
    return reading.boot_id.startswith(_MANUAL)


class Clock(Protocol):
    """A clock: the time of day, and durations."""

    stepped: Callable[[Reading], None]
    """Called with each step of the clock, in any thread, before `now_ms` returns it; see `expect`."""

    def now_ms(self) -> int:
        """Returns the time in milliseconds since the epoch, as records are stamped with it."""
        ...

    def steady_ms(self) -> int:
        """Returns the milliseconds of this clock that have passed; never decreases.

        For work at intervals.
        """
        ...

    async def reached(self, steady_ms: int) -> None:
        """Waits until `steady_ms()` is at least this."""
        ...

    def monotonic_s(self) -> float:
        """Returns seconds of the machine's monotonic clock, for waits, idle times and durations."""
        ...

    def reading(self) -> Reading:
        """Returns the time, the time since the boot, and the id of the boot."""
        ...

    def expect(self, reading: Reading) -> None:
        """Stores the expected course of the clock: a time further off than the tolerance is a step."""
        ...


class SystemClock:
    """The machine's clock."""

    stepped: Callable[[Reading], None]
    _steady_ns: tuple[float, float] = (-math.inf, math.inf)  # the time minus that which has passed

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        # In this order: a thread that is paused between the two sees no clock that goes back. The monotonic
        # time does not pass while the machine is suspended; then a reading finds that there was no step. But
        # reading it takes a tenth of the time of a `reading`.
        passed_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        least_ns, most_ns = self._steady_ns
        if not least_ns <= wall_ns - passed_ns <= most_ns:
            elapsed_ms = (passed_ns + _suspended_ns()) // 1_000_000
            self.stepped(Reading(wall_ns // 1_000_000, elapsed_ms, _boot_id()))
        return wall_ns // 1_000_000

    def expect(self, reading: Reading) -> None:
        """Stores the expected course of the clock; see `Clock.expect`."""
        ahead_ns = (reading.wall_ms - reading.elapsed_ms) * 1_000_000 + _suspended_ns()
        off_ns = TOLERANCE_MS * 1_000_000
        self._steady_ns = (ahead_ns - off_ns, ahead_ns + off_ns)

    def steady_ms(self) -> int:
        """Returns milliseconds since an arbitrary start."""
        return time.monotonic_ns() // 1_000_000

    async def reached(self, steady_ms: int) -> None:
        """Waits until `steady_ms()` is at least this."""
        await asyncio.sleep((steady_ms - self.steady_ms()) / 1000)

    # Seconds since an arbitrary start. The function itself, because every request calls it four
    # times, and a method around it takes longer than it does.
    monotonic_s = staticmethod(time.monotonic)

    def reading(self) -> Reading:
        """Returns the time, and how long the machine has been running."""
        elapsed_ms = time.clock_gettime_ns(_SINCE_BOOT) // 1_000_000
        return Reading(time.time_ns() // 1_000_000, elapsed_ms, _boot_id())


def _suspended_ns() -> int:
    """Returns for how long the machine was suspended since its boot, in ns."""
    return time.clock_gettime_ns(_SINCE_BOOT) - time.monotonic_ns()


class ClockRangeError(ValueError):
    """A time or a rate that the clock cannot have; the text has the valid range."""


class _Moment(NamedTuple):
    """The time of the clock when it was last changed, and its rate since."""

    now_ms: int
    rate: float
    machine_ns: int
    steady_ms: int

    def passed_ms(self) -> int:
        """Returns the milliseconds of the clock that have passed since."""
        if not self.rate:
            return 0
        return int((time.monotonic_ns() - self.machine_ns) * self.rate) // 1_000_000


class ManualClock:
    """A manual clock: it stands still until it is set, stepped or run at a rate.

    The clock can have every int64 except -1, which is "no time" in Kafka and is skipped to 0, and the two
    smallest, which are markers on disk. At the largest it stands still. Setting the clock back does not
    decrease `steady_ms`, which counts how far the clock went forward. A leap does not increase it: the
    clock then has a time that has not passed. The machine's seconds (`monotonic_s`) continue, because
    sockets use real time. One thread changes the clock; any thread may read it.
    """

    stepped: Callable[[Reading], None]
    _steady_ms: tuple[float, float] = (-math.inf, math.inf)

    def __init__(self, now_ms: int = 0) -> None:
        """Starts at a time, standing still; raises ClockRangeError."""
        self._moment = _Moment(_checked(now_ms), 0, 0, 0)
        self._boot_id = f"{_MANUAL}{uuid.uuid4()}"
        self._waits: set[asyncio.Future[None]] = set()

    @property
    def rate(self) -> float:
        """The seconds of this clock that pass in one second of the machine; 0 while it stands still."""
        return self._moment.rate

    def now_ms(self) -> int:
        """Returns this clock's time in milliseconds since the epoch."""
        reading = self.reading()
        least_ms, most_ms = self._steady_ms
        if not least_ms <= reading.wall_ms - reading.elapsed_ms <= most_ms:
            self.stepped(reading)
        return reading.wall_ms

    def steady_ms(self) -> int:
        """Returns by how many milliseconds the clock has gone forward since it was made."""
        moment = self._moment
        return moment.steady_ms + moment.passed_ms()

    def reading(self) -> Reading:
        """Returns the time, and by how much the clock has gone forward since it was made."""
        moment = self._moment
        passed_ms = moment.passed_ms()
        now_ms = min(moment.now_ms + passed_ms, LAST_MS)
        now_ms = 0 if now_ms == NO_TIMESTAMP else now_ms
        return Reading(now_ms, moment.steady_ms + passed_ms, self._boot_id)

    def expect(self, reading: Reading) -> None:
        """Stores the expected course of the clock; see `Clock.expect`."""
        ahead_ms = reading.wall_ms - reading.elapsed_ms
        self._steady_ms = (ahead_ms - TOLERANCE_MS, ahead_ms + TOLERANCE_MS)

    async def reached(self, steady_ms: int) -> None:
        """Waits until the clock has gone forward this far, by running or by steps."""
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
        """Returns seconds of the machine."""
        return time.monotonic()

    def set(self, now_ms: int) -> None:
        """Sets the clock to a time, forwards or back, running on as before.

        Raises ClockRangeError.
        """
        self._touch(now_ms, self._moment.rate)

    def step(self, step_ms: int) -> None:
        """Moves the clock by a duration, forwards or back, running on; raises ClockRangeError."""
        self._touch(self.now_ms() + step_ms, self._moment.rate)

    def leap(self, by_ms: int) -> None:
        """Moves the clock without time passing, running on; raises ClockRangeError."""
        self._touch(self.now_ms() + by_ms, self._moment.rate, passes=False)

    def freeze(self, at_ms: int | None = None) -> None:
        """Stops the clock, now or at a given time; raises ClockRangeError."""
        self._touch(self.now_ms() if at_ms is None else at_ms, 0)

    def run(self, rate: float = 1, from_ms: int | None = None) -> None:
        """Runs the clock at a rate, from now on or from a given time; raises ClockRangeError."""
        if not 0 < rate <= _MOST_RATE or math.isnan(rate):
            raise ClockRangeError(f"rate {rate}: expected a number above 0, at most 1e9")
        self._touch(self.now_ms() if from_ms is None else from_ms, rate)

    def _touch(self, now_ms: int, rate: float, *, passes: bool = True) -> None:
        before_ms, steady_ms = self.reading().wall_ms, self.steady_ms()
        forward_ms = max(0, _checked(now_ms) - before_ms)
        steady_ms += forward_ms if passes else 0
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
