"""A machine whose wall clock may be wrong, and what of that nobody could detect.

True time is what happens. The wall clock shows it, or is ahead, behind, too fast, too slow, or stands
still. The time since the start of the machine is always right, and counts while it is suspended.

`Exemptions` is the only place that says how far a broker may be mistaken (decision 22):

- the clock is wrong from the first reading on: then by as much, as long as the broker takes that for right;
- it is ahead by no more than ten seconds, or by a thousandth of the time that it was wrong;
- it is ahead, after a restart of the machine, by no more than `clock.start.pause.ms`;
- it is behind from the first reading on, and less so after a restart of the machine, by no more than
  `clock.start.pause.ms`: that looks like the time for which the machine was off;
- it went back, then the machine was off: what was written before may count as later, by as long
  as it was off (`Model.pause_counted`);
- event times count up to the true time and the cap, where a wrong clock has given some of them;
- while the clock is behind, event times before the step back count as less, by as much at the most:
  event time is relative, and its reach is bounded by the cap, the grace and the floor;
- what it stamped while it was wrong by no more than ten seconds, or a thousandth, stays as it is.
"""

from __future__ import annotations

from typing import NamedTuple

TOLERANCE_MS = 10_000
DRIFT = 1_000
PAUSE_MS = 30 * 86_400_000


class Reading(NamedTuple):
    """What the clocks of the machine show at one moment."""

    wall_ms: int
    elapsed_ms: int
    boot_id: str


class Machine:
    """True time, a wall clock, and the time since the machine was started."""

    def __init__(self, true_ms: int, wall_ms: int) -> None:
        self.true_ms = true_ms
        self.boot = 1
        self._booted_ms = true_ms - 1_000
        self.rate = 1.0
        self.set_wall(wall_ms)

    def set_wall(self, wall_ms: int, rate: float = 1.0) -> None:
        """Sets the wall clock; from then on it goes at `rate` ms for each true ms."""
        self._set_ms, self._wall_ms, self.rate = self.true_ms, wall_ms, rate

    @property
    def wall_ms(self) -> int:
        return self._wall_ms + int((self.true_ms - self._set_ms) * self.rate)

    @property
    def error_ms(self) -> int:
        """By how much the wall clock is ahead."""
        return self.wall_ms - self.true_ms

    def pass_time(self, ms: int) -> None:
        self.true_ms += ms

    def restart(self, off_ms: int) -> None:
        """Switches the machine off and on; its clock goes on meanwhile."""
        self.true_ms += off_ms
        self.boot += 1
        self._booted_ms = self.true_ms

    def reading(self) -> Reading:
        return Reading(self.wall_ms, self.true_ms - self._booted_ms, f"boot {self.boot}")


class Exemptions:
    """How far the deletion time may be ahead, and append times early, without anybody's fault."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._boot = machine.boot
        self._last_ms = machine.true_ms
        self._wrong_ms = 0  # for how long the clock was wrong, all in all
        self._reach_ms = max(machine.error_ms, 0)  # how far ahead a course may be that is trusted
        self._once = [machine.error_ms]  # by how much trusted courses were ahead
        self.behind_ms = 0  # the most that it was behind
        self._first_ms = min(machine.error_ms, 0)  # while nothing shows that it was behind at first
        self._was_off = False  # since the last reading that may be as long as the machine was off
        self._unseen_ms = 0  # by how much it was corrected then, while the machine was off
        self.was_wrong = abs(machine.error_ms) > TOLERANCE_MS

    def observe(self) -> None:
        """Takes into account what the clock shows now; call it whenever the broker reads it."""
        machine = self._machine
        error_ms = machine.error_ms
        passed_ms, self._last_ms = machine.true_ms - self._last_ms, machine.true_ms
        if self.was_wrong:
            self._wrong_ms += passed_ms
        self.was_wrong |= error_ms != 0
        self.behind_ms = max(self.behind_ms, -error_ms)
        if machine.boot != self._boot:
            self._boot = machine.boot
            self._reach_ms += PAUSE_MS
            self._was_off = True
        # The clock may be wrong in another way at first: what follows may be the time it was off, too.
        if self._was_off and self._first_ms < error_ms <= self._first_ms + PAUSE_MS:
            self._was_off = False
            self._unseen_ms += min(error_ms, 0) - self._first_ms
            self._first_ms = min(error_ms, 0)
        if abs(error_ms) <= self.slack_ms:
            self._reach_ms = self._first_ms = 0
        elif error_ms > 0 and error_ms <= self._reach_ms:
            self._once.append(error_ms)

    @property
    def slack_ms(self) -> int:
        """What is tolerated whatever the reason: of readings and of stamps."""
        return 2 * TOLERANCE_MS + 2 * self._wrong_ms // DRIFT

    @property
    def ahead_ms(self) -> int:
        """How far the time by which is deleted may be ahead of the true time."""
        error_ms = max(self._machine.error_ms, 0)
        reach_ms = max(min(error_ms, self._reach_ms), *self._once)
        return reach_ms + self._unseen_ms + self.slack_ms
