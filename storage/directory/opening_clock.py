"""What the clock shows when a partition is opened, and how it has changed before.

Partitions are opened at any time, so the moment at which the store was opened is not enough: the
clock may have been wrong then. The broker says whom to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.time.corrections import NO_HISTORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.time.corrections import ClockHistory


class ClockNow(NamedTuple):
    """The clock at one moment."""

    now_ms: int  # what it shows
    deletion_ms: int  # the time by which may be deleted, no later
    history: ClockHistory


class OpeningClock:
    """The clock of those who open partitions; until `ask` is called, it stands still."""

    def __init__(self) -> None:
        self._ask: Callable[[], ClockNow] | None = None
        self._begun_ms = 0

    def begin(self, now_ms: int) -> None:
        """Shows this time while there is nobody to ask."""
        self._begun_ms = now_ms

    def ask(self, ask: Callable[[], ClockNow]) -> None:
        """Asks the broker from now on."""
        self._ask = ask

    def now(self) -> ClockNow:
        """Returns the clock as it is."""
        if self._ask is not None:
            return self._ask()
        return ClockNow(self._begun_ms, self._begun_ms, NO_HISTORY)
