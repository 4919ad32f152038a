"""The wall clock of a machine, and what a process on it reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.replication.timeline import BEGIN_MS, HOUR_MS
from tidelog.broker.clock import Clock as NodeClock
from tidelog.storage.time.trusted_clock import Reading

if TYPE_CHECKING:
    import random

    from tests.simulation.replication.brokers.machine import Machine


class Clock:
    """A machine's wall clock, which may be wrong by hours, and may stand still."""

    def __init__(self, pick: random.Random) -> None:
        self.error_ms = pick.choice([0, 0, 0, pick.randint(-2_000, 2_000), 5 * HOUR_MS, -HOUR_MS])
        self.frozen_ms: int | None = None

    def wall_ms(self, now_ms: int) -> int:
        """Returns what the clock shows."""
        if self.frozen_ms is not None:
            return self.frozen_ms
        return BEGIN_MS + now_ms + self.error_ms

    def jump(self, by_ms: int) -> None:
        """Steps forward or back."""
        self.error_ms += by_ms

    def freeze(self, now_ms: int) -> None:
        """Stands still until it is thawed."""
        self.frozen_ms = self.wall_ms(now_ms)

    def thaw(self) -> None:
        """Goes on as if it had not stood still."""
        self.frozen_ms = None


class MachineClock(NodeClock):
    """What a process reads: the machine's wall clock, and virtual time."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._timeline = machine.world.timeline
        self._boot_id = machine.boot_id

    def now_ms(self) -> int:
        return self._machine.clock.wall_ms(self._timeline.now_ms)

    def steady_ms(self) -> int:
        return self._timeline.now_ms

    async def reached(self, steady_ms: int) -> None:
        await asyncio.sleep((steady_ms - self.steady_ms()) / 1000)

    def monotonic_s(self) -> float:
        return self._timeline.now_ms / 1000

    def reading(self) -> Reading:
        return Reading(self.now_ms(), self._timeline.now_ms, self._boot_id)
