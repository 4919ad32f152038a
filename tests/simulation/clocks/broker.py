"""The broker's side of a clock: it reads it every ten seconds, and tells a partition what has changed.

What decides is the product's `TrustedClock`. Steps get numbers, as the broker gives them, so a partition
that was closed takes them into account when it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clocks.machine import PAUSE_MS, TOLERANCE_MS, Exemptions
from tests.simulation.clocks.settings import DAY, HOUR, MINUTE, RELEASED_MS, SECOND, YEAR
from tidelog.storage.directory.opening_clock import ClockNow
from tidelog.storage.time.corrections import ClockHistory, ForwardStep
from tidelog.storage.time.trusted_clock import Leap, Reading, StepBack, TrustedClock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tests.simulation.clocks.machine import Machine
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.time.trusted_clock import Change

ERRORS = [
    *(20 * SECOND, 5 * MINUTE, HOUR, DAY, 10 * DAY, 60 * DAY, YEAR, 10 * YEAR),
    *(-8 * SECOND, -20 * SECOND, -HOUR, -DAY, -40 * DAY, -3 * YEAR),
]
RATES = [0.0, 0.0, 0.9, 0.9995, 1.0005, 1.1, 3.0]


class BrokerClock:
    """What a broker knows about the clock of its machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.exempt = Exemptions(machine)
        self.trusted = TrustedClock.beginning(
            self.reading(), released_ms=RELEASED_MS, pause_ms=PAUSE_MS
        )
        self.history = ClockHistory("history")
        self.went_back = False
        self.is_unread = False  # the clock went wrong since the last reading
        self.wrong_since: int | None = None  # true time; None: the clock is right, and trusted
        self.partition: Partition | None = None
        self.on_change: Callable[[str], None] = lambda _: None
        self.on_step: Callable[[Change], None] = lambda _: None  # to correct times that are kept

    def reading(self) -> Reading:
        return Reading(*self.machine.reading())

    def serve(self, store: LogStore) -> None:
        """Lets a store ask when it opens partitions."""
        store.clock.ask(lambda: ClockNow(self.machine.wall_ms, self.deletion_ms(), self.history))

    def deletion_ms(self) -> int:
        reading = self.reading()
        return self.trusted.deletion_time(reading.wall_ms, reading.elapsed_ms)

    @property
    def is_right(self) -> bool:
        """Whether the clock is right, and goes right."""
        return abs(self.machine.error_ms) <= TOLERANCE_MS and self.machine.rate == 1.0

    def observe(self) -> None:
        """Reads the clocks."""
        self.exempt.observe()
        self.is_unread = False
        self._tell(self.trusted.observe(self.reading()))
        if self.is_right and self.trusted.leap is None:
            self.wrong_since = None
        elif self.wrong_since is None:
            self.wrong_since = self.machine.true_ms

    def accept(self) -> bool:
        """Accepts a leap, as an operator does; returns whether there was one."""
        steps = self.trusted.accept(self.reading())
        self._tell(steps)
        return bool(steps)

    def _tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.on_change(repr(change))
            self.on_step(change)
            partition = self.partition
            if isinstance(change, ForwardStep):
                number = len(self.history.steps) + 1
                steps = (*self.history.steps, (number, change))
                self.history = self.history._replace(steps=steps)
                if partition is not None:
                    partition.note_step_forward(change, self.history.history_id, number)
            elif partition is not None and isinstance(change, Leap):
                partition.begin_segment_at_next_append()
            elif isinstance(change, StepBack):
                self.went_back = True
                if partition is not None:
                    partition.note_step_back(change.to_ms)

    # --- what happens to the clock ----------------------------------------------------------------

    def go_wrong(self, random: random.Random) -> None:
        """Sets the clock wrong in one of many ways."""
        machine = self.machine
        what = random.random()
        if what < 0.6:
            machine.set_wall(machine.true_ms + random.choice(ERRORS))
        elif what < 0.7:
            machine.set_wall(random.randint(0, DAY))  # until NTP comes
        else:
            machine.set_wall(machine.wall_ms, random.choice(RATES))
        was_wrong, self.exempt.was_wrong = self.exempt.was_wrong, True
        self.is_unread = True
        # From the second mistake on, what was there may count as written when it is corrected.
        self.wrong_since = 0 if was_wrong else machine.true_ms

    def set_right(self) -> None:
        self.machine.set_wall(self.machine.true_ms)
