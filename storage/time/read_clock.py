"""A broker's clock between what was read of it and what its logs have taken into account.

Readings come at intervals, and from whoever meets a time that no steady clock shows. What they change
concerns the logs: each has to note a correction. Until all have, nothing is deleted by a later time than
the lowest that was read since.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.storage.time.corrections import ForwardStep
    from tidelog.storage.time.trusted_clock import Change, Reading, TrustedClock


class Known(NamedTuple):
    """What is known of a clock at one moment, by so many readings that have changed it."""

    clock: TrustedClock
    readings: int


class ReadClock:
    """What was read of one clock. One thread at a time calls a method."""

    def __init__(self, trusted: TrustedClock) -> None:
        """Begins with a clock of which the logs know everything."""
        self.latest = self.in_force = trusted
        self._pending: tuple[Reading, ...] = ()  # of changes that the logs have not noted yet

    def read(self, reading: Reading) -> list[Change]:
        """Takes a reading into account; returns how the clock has changed since the last one."""
        latest = copy.copy(self.latest)
        changes = latest.observe(reading)
        self.latest = latest
        if changes:
            self._pending = (*self._pending, reading)
        return changes

    def read_late(self, reading: Reading) -> list[Change]:
        """Takes a reading into account that another thread has made, perhaps before the last one."""
        least_ms = self.latest.state.last.elapsed_ms
        return self.read(reading._replace(elapsed_ms=max(reading.elapsed_ms, least_ms)))

    def accept(self, reading: Reading) -> list[ForwardStep]:
        """Trusts the clock although it has leapt; returns the steps, none if it had not."""
        latest = copy.copy(self.latest)
        steps = latest.accept(reading)
        self.latest = latest
        return steps

    def known(self) -> Known:
        """Returns what is known now, for the logs."""
        return Known(self.latest, len(self._pending))

    def apply(self, known: Known) -> None:
        """Deletes by what was known at a moment: all logs have taken it into account."""
        self.in_force, self._pending = known.clock, self._pending[known.readings :]

    def deletion_time(self, reading: Reading) -> int:
        """Returns the time by which records, offsets and ids may be deleted now."""
        least_ms = self.in_force.deletion_time(reading.wall_ms, reading.elapsed_ms)
        return min((least_ms, *(each.at(reading.elapsed_ms) for each in self._pending)))
