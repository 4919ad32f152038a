"""What the runs beside the main one have in common: a machine, a broker's clock on it, and trouble with it.

A run takes a `Timeline`, does its own steps by the seed's random numbers, and is told when the clock
has been read. True time is `machine.true_ms`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.clocks.broker import ERRORS, BrokerClock
from tests.simulation.clocks.machine import Machine
from tests.simulation.clocks.model import BrokenPromiseError
from tests.simulation.clocks.settings import BEGIN_MS, YEAR

if TYPE_CHECKING:
    from collections.abc import Callable

OBSERVE_MS = 10_000


class Timeline:
    """True time passing, and what happens to the clock meanwhile."""

    def __init__(self, seed: str, *, blinks: bool) -> None:
        self.blinks = blinks
        self.random = pick = random.Random(seed)
        begin_ms = BEGIN_MS + pick.randint(0, YEAR)
        first_error_ms = pick.choice(ERRORS) if pick.random() < 0.1 else 0
        self.machine = Machine(begin_ms, begin_ms + first_error_ms)
        self.clock = BrokerClock(self.machine)
        self.clock.on_change = self.say
        self.exempt = self.clock.exempt
        self.trouble = pick.choice([0, 1, 3])
        self.trace: list[str] = []
        self.corrected: Callable[[], None] = lambda: None  # called while the clock is wrong
        self.use: Callable[[], None] = lambda: None  # what somebody does who uses the clock
        self._next_ms = self.machine.true_ms

    def say(self, what: str) -> None:
        machine = self.machine
        self.trace.append(f"{machine.true_ms} {machine.error_ms:+} ms: {what}")

    @property
    def now_ms(self) -> int:
        """The true time."""
        return self.machine.true_ms

    @property
    def early_ms(self) -> int:
        """The true time, and how much more of it a broker may take it for."""
        return self.now_ms + self.exempt.ahead_ms + self.exempt.slack_ms

    def observe(self) -> None:
        """Reads the clocks, as the broker does every ten seconds."""
        was_wrong = self.clock.wrong_since is not None
        self.clock.observe()
        if was_wrong or self.clock.wrong_since is not None:
            self.corrected()
        self._next_ms = self.now_ms + OBSERVE_MS

    def pass_time(self, ms: int) -> None:
        """Lets time pass; the broker reads the clocks at the beginning, and now and then."""
        end_ms = self.now_ms + ms
        while self._next_ms < end_ms:
            self.machine.pass_time(max(self._next_ms - self.now_ms, 0))
            self.observe()
            rest_ms = end_ms - self.now_ms
            if rest_ms > 10 * OBSERVE_MS:
                skipped = self.random.randint(rest_ms // 3, rest_ms) // OBSERVE_MS - 1
                self._next_ms += max(skipped, 0) * OBSERVE_MS
        self.machine.pass_time(end_ms - self.now_ms)

    def go_wrong(self) -> None:
        if not self.blinks:
            self.observe()
        self.clock.go_wrong(self.random)
        self.say(f"the clock goes wrong, rate {self.machine.rate}")

    def blink(self) -> None:
        """The clock is wrong for a moment, in which somebody may use it, and is right again."""
        # The first reading of a start, and what follows, are not one moment.
        self.machine.pass_time(1)
        self.clock.go_wrong(self.random)
        self.say(f"the clock blinks, rate {self.machine.rate}")
        for _ in range(self.random.choice([0, 1, 2])):
            self.use()
            self.pass_time(int(10 ** self.random.uniform(0, 4)))
        self.clock.set_right()
        self.say("the clock is right again")

    def heal(self) -> None:
        """The clock is set right; a command is given only if status names one."""
        self.pass_time(self.random.randint(0, 20_000))
        self.observe()
        self.clock.set_right()
        self.say("the clock is right again")
        self.pass_time(3 * OBSERVE_MS)
        self.observe()
        if self.clock.accept():
            self.say("accepted")
            self.observe()
        late_ms = self.now_ms - self.clock.deletion_ms()
        if late_ms > self.exempt.slack_ms:
            raise BrokenPromiseError(f"P2: deletion is {late_ms} ms late, and nothing says so")

    def suspend(self) -> None:
        """The machine sleeps: time passes, and nobody reads a clock."""
        self.machine.pass_time(int(10 ** self.random.uniform(4, 8)))
        self.say("suspended until now")

    def restart(self) -> None:
        """The broker was off, or the whole machine; the clock is read before anything is opened."""
        off_ms = int(10 ** self.random.uniform(3, 8))
        if self.random.random() < 0.5:
            self.machine.restart(off_ms)
            if self.trouble and self.random.random() < 0.4:
                self.clock.go_wrong(self.random)
        else:
            self.machine.pass_time(off_ms)
        self.observe()
        self.say(f"restarted, {off_ms} ms later")

    def weights(self) -> dict[Callable[[], None], float]:
        """Returns the steps that happen to the clock, and how often."""
        blinks = {self.blink: self.trouble} if self.blinks else {}
        return {
            self.go_wrong: self.trouble,
            self.heal: 2 * self.trouble,
            self.suspend: 0.3,
            **blinks,
        }

    def live(self, weights: dict[Callable[[], None], float], steps: int) -> None:
        """Takes random steps."""
        for _ in range(steps):
            (do,) = self.random.choices(list(weights), list(weights.values()))
            do()
