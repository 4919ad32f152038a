"""A broker's clock between what was read of it and what its logs have taken into account.

Readings come at intervals, and from whoever meets a time that no steady clock shows. What they change
concerns the logs: each has to note a correction. Until all have, nothing is deleted by a later time than
the lowest that was read since.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.storage.time.corrections import ForwardStep
    from tidelog.storage.time.trusted_clock import Change, Reading, TrustedClock


class ReadClock:
    """What was read of one clock. One thread at a time calls a method."""

    def __init__(self, trusted: TrustedClock) -> None:
        """Begins with a clock of which the logs know everything."""
        self.latest = self.in_force = trusted
        self._lowest: Reading | None = None  # since `known` was called last
        self._lowest_known: Reading | None = None  # before that, until `apply`

    def read(self, reading: Reading) -> list[Change]:
        """Takes a reading into account; returns how the clock has changed since the last one."""
        latest = copy.copy(self.latest)
        changes = latest.observe(reading)
        self.latest = latest
        self._lowest = _lower(self._lowest, reading)
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

    def known(self) -> TrustedClock:
        """Returns what is known now, for the logs."""
        if self._lowest is not None:
            self._lowest_known = _lower(self._lowest_known, self._lowest)
        self._lowest = None
        return self.latest

    def apply(self, known: TrustedClock) -> None:
        """Deletes by what `known` has returned last: all logs have taken it into account."""
        self.in_force, self._lowest_known = known, None

    def deletion_time(self, reading: Reading) -> int:
        """Returns the time by which records, offsets and ids may be deleted now."""
        least_ms = self.in_force.deletion_time(reading.wall_ms, reading.elapsed_ms)
        lowest = (each for each in (self._lowest, self._lowest_known) if each is not None)
        return min((least_ms, *(each.at(reading.elapsed_ms) for each in lowest)))


def _lower(one: Reading | None, other: Reading) -> Reading:
    """Returns which of two readings shows less, compared with the time that has passed."""
    return other if one is None or other.at(one.elapsed_ms) < one.wall_ms else one
