"""The broker's parts that requests of the control listener use, and the parsing of times."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.clock import ManualClock
from tidelog.broker.http.answers import HttpError
from tidelog.config.instants import parse_duration, parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.http.services import Services
    from tidelog.broker.logs.maintenance.compaction_rounds import CompactionRounds
    from tidelog.broker.logs.maintenance.retention_rounds import RetentionRounds
    from tidelog.broker.testing.faults import Faults


class Control(NamedTuple):
    """The broker's parts that the handlers of the control listener use."""

    services: Services
    rounds: RetentionRounds
    compaction: CompactionRounds
    faults: Faults

    @property
    def clock(self) -> ManualClock:
        """The manual clock; raises HttpError if the broker has another one."""
        clock = self.services.clock
        if isinstance(clock, ManualClock):
            return clock
        raise HttpError(
            400, "CLOCK_NOT_MANUAL", "the clock is the machine's own: start with --clock manual"
        )

    def time(self, given: Mapping[str, Any], name: str) -> int:
        """Returns a required time of the request, in ms since the epoch; raises HttpError."""
        return self._read(given, name, partial(parse_instant, now_ms=self.services.clock.now_ms()))

    def span(self, given: Mapping[str, Any], name: str) -> int:
        """Returns a required duration of the request, in ms; raises HttpError."""
        return self._read(given, name, parse_duration)

    @staticmethod
    def _read(given: Mapping[str, Any], name: str, read: Callable[[Any], int]) -> int:
        if name not in given:
            raise HttpError(400, "MISSING", f"{name} is missing")
        try:
            return read(given[name])
        except ValueError as error:
            raise HttpError(400, "BAD_TIME", f"{name}: {error}") from None
