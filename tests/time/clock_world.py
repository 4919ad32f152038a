"""A machine with a wall clock that may be wrong, and the commands of the scripts, which act on it.

    machine wall=S [released=S] [pause=D]   a machine that has just started, and a broker on it
    run for=D [rate=R]        time passes, and the wall clock runs at a rate; 0: it stands still
    step by=D                 the wall clock is set forward or back, and ten seconds pass
    set by=D                  it is set, and nobody has read it yet
    boot off=D [step=D]       the machine is off for a while, starts, and its clock is off by a step
    accept                    an operator says that the clock is right

S is a time as in 2026-11-22T10:00, D a duration as in 10s, 2h, 30d or 10y. The clock is read every
ten seconds. Each command gives the changes that the broker saw, what the clock shows, and the time by
which it deletes, if that is another one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tests.time.scripts import arguments
from tidelog.storage.time.corrections import ForwardStep
from tidelog.storage.time.trusted_clock import Leap, Reading, StepBack, TrustedClock

_INTERVAL_MS = 10_000
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "y": 365 * 86_400_000}


class ClockWorld:
    """The machine, and the broker's trusted clock."""

    def __init__(self, _path):
        self.wall_ms = self.elapsed_ms = self.boot = 0
        self.clock = None

    def close(self):
        pass

    def run(self, command):
        """Runs a command; returns what it gave."""
        name, options = arguments(command)
        changes = getattr(self, f"do_{name}")(options)
        return [*map(_told, changes), self._shown()]

    def do_machine(self, options):
        self.wall_ms, self.elapsed_ms = _time(options["wall"]), _INTERVAL_MS
        self.clock = TrustedClock.beginning(
            self._reading(),
            released_ms=_time(options.get("released", "2026-11-22T00:00")),
            pause_ms=_duration(options.get("pause", "30d")),
        )
        return []

    def do_run(self, options):
        left_ms, rate, changes = _duration(options["for"]), float(options.get("rate", 1)), []
        while left_ms > 0:
            passed_ms = min(left_ms, _INTERVAL_MS)
            left_ms -= passed_ms
            self.elapsed_ms += passed_ms
            self.wall_ms += int(passed_ms * rate)
            changes += self.clock.observe(self._reading())
        return changes

    def do_step(self, options):
        self.wall_ms += _duration(options["by"])
        return self.do_run({"for": "10s"})

    def do_set(self, options):
        self.wall_ms += _duration(options["by"])
        return []

    def do_boot(self, options):
        self.boot += 1
        self.elapsed_ms = _INTERVAL_MS
        self.wall_ms += _duration(options["off"]) + _duration(options.get("step", "0s"))
        return self.clock.observe(self._reading())

    def do_accept(self, _):
        return self.clock.accept(self._reading())

    def _reading(self):
        return Reading(self.wall_ms, self.elapsed_ms, str(self.boot))

    def _shown(self):
        deletion_ms = self.clock.deletion_time(self.wall_ms, self.elapsed_ms)
        deletes = "" if deletion_ms == self.wall_ms else f", deletes by {_iso(deletion_ms)}"
        leapt = "" if self.clock.leap is None else ", not trusted"
        return f"clock {_iso(self.wall_ms)}{deletes}{leapt}"


def _told(change):
    if isinstance(change, Leap):
        return f"leap from {_iso(change.from_ms)} to {_iso(change.to_ms)}"
    if isinstance(change, StepBack):
        return f"step back from {_iso(change.from_ms)} to {_iso(change.to_ms)}"
    assert isinstance(change, ForwardStep)
    stamped = f"{_iso(change.since_ms)} to {_iso(change.until_ms)}"
    return f"step forward: append times from {stamped} count as {_length(change.shift_ms)} later"


def _time(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def _iso(ms):
    if ms < -(2**62):
        return "the beginning"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _duration(text):
    sign, number, unit = re.fullmatch(r"([-+]?)(\d+)(\w)", text).groups()
    return (-1 if sign == "-" else 1) * int(number) * _UNITS_MS[unit]


def _length(ms):
    for unit, unit_ms in reversed(_UNITS_MS.items()):
        if ms % unit_ms == 0:
            return f"{ms // unit_ms}{unit}"
    return f"{ms}ms"
