"""The broker's side of a clock: it reads it every ten seconds, and lets a partition note what has changed.

What decides is the product's `ReadClock` and `TrustedClock`. Whoever uses the time brings a reading that no
steady clock shows; the partition notes what that changes a while later. Steps get numbers, as the broker
gives them, so a partition that was closed takes them into account when it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.clocks.machine import PAUSE_MS, TOLERANCE_MS, Exemptions
from tests.simulation.clocks.settings import DAY, HOUR, MINUTE, RELEASED_MS, SECOND, YEAR
from tidelog.storage.directory.opening_clock import ClockNow
from tidelog.storage.time.append_time import ClockWentBack
from tidelog.storage.time.corrections import ClockHistory, ForwardStep
from tidelog.storage.time.read_clock import ReadClock
from tidelog.storage.time.trusted_clock import Leap, Reading, StepBack, TrustedClock, as_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tests.simulation.clocks.machine import Machine
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.appender import Appended
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
        self.read = ReadClock(
            TrustedClock.beginning(self.reading(), released_ms=RELEASED_MS, pause_ms=PAUSE_MS)
        )
        self.history = ClockHistory("history")
        self.went_back = False
        self.wrong_since: int | None = None  # true time; None: the clock is right, and trusted
        self._changes: list[Change] = []  # that the partition has not noted yet
        self.partition: Partition | None = None
        self.on_change: Callable[[str], None] = lambda _: None
        self.on_step: Callable[[Change], None] = lambda _: None  # to correct times that are kept

    def reading(self) -> Reading:
        return Reading(*self.machine.reading())

    def serve(self, store: LogStore) -> None:
        """Lets a store ask when it opens partitions."""
        store.clock.ask(lambda: ClockNow(self.machine.wall_ms, self.deletion_ms(), self.history))

    def deletion_ms(self) -> int:
        return self.read.deletion_time(self.reading())

    @property
    def is_right(self) -> bool:
        """Whether the clock is right, and goes right."""
        return abs(self.machine.error_ms) <= TOLERANCE_MS and self.machine.rate == 1.0

    def observe(self) -> None:
        """Reads the clocks."""
        self._read()
        self.correct_logs()
        if self.is_right and self.read.latest.leap is None:
            self.wrong_since = None
        elif self.wrong_since is None:
            self.wrong_since = self.machine.true_ms

    def accept(self) -> bool:
        """Accepts a leap, as an operator does; returns whether there was one."""
        steps = self.read.accept(self.reading())
        self._note(steps)
        self.correct_logs()
        return bool(steps)

    def now_ms(self) -> int:
        """Returns the time to somebody who stamps something with it."""
        reading = self.reading()
        if not self.read.latest.is_steady(reading):
            self._read()
            if self.machine.true_ms % 2:  # the logs are corrected at once, or a while later
                self.correct_logs()
        return reading.wall_ms

    def append(self, data: bytes, **how: Any) -> Appended:
        """Appends to the partition, as the broker does."""
        partition = self.partition
        assert partition is not None
        while True:
            try:
                return partition.append(data, now_ms=self.now_ms(), **how)
            except ClockWentBack:
                history, now_ms = self.history, self.now_ms()
                if history is self.history:
                    partition.append_clock.catch_up(history, now_ms)

    def _read(self) -> None:
        self.exempt.observe()
        self._note(self.read.read(self.reading()))

    def _note(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.on_change(repr(change))
            self._changes.append(change)
            if isinstance(change, ForwardStep):
                steps = (*self.history.steps, (len(self.history.steps) + 1, change))
                self.history = self.history._replace(steps=steps)
            self.went_back |= isinstance(change, StepBack)

    def correct_logs(self) -> None:
        """Lets the partition, and whatever else keeps times, take into account what has changed."""
        known, changes, self._changes = self.read.known(), self._changes, []
        if changes and self.partition is not None:
            if any(isinstance(change, Leap) for change in changes):
                self.partition.begin_segment_at_next_append()
            self.partition.append_clock.catch_up(self.history, self.machine.wall_ms)
        for change in changes:
            self.on_step(as_of(change, self.machine.wall_ms))
        self.read.apply(known)
        if changes:
            self.on_change("the logs are corrected")

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
        # From the second mistake on, what was there may count as written when it is corrected.
        self.wrong_since = 0 if was_wrong else machine.true_ms

    def set_right(self) -> None:
        self.machine.set_wall(self.machine.true_ms)
