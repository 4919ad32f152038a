"""Rounds of work that are due by the broker's clock, one after another.

A failed round is logged, and the next one is due as if it had succeeded: the loop ends only when it
is cancelled. However far the clock is stepped, one round is due.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    import logging

    from tidelog.broker.logs.maintenance.services import Services

_ADVICE = "the next round tries again"


class DueRounds(ABC):
    """The rounds of one broker; a round on demand takes the same lock."""

    log: ClassVar[logging.Logger]
    failed: ClassVar[str]  # the log message for a failed round

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = asyncio.Lock()
        self._due_ms = self._next_ms()

    async def run(self) -> None:
        """Does each round when it is due, until cancelled."""
        while True:
            await self._services.clock.reached(self._due_ms)
            await self.catch_up()

    async def catch_up(self) -> None:
        """Does a round if one is due."""
        async with self._lock:
            if self._services.clock.steady_ms() < self._due_ms:
                return
            try:
                await self._do_due()
            except BrokerError as error:  # the next round may succeed; the loop must not end
                self.log.error(self.failed, extra={"reason": error.message, "advice": _ADVICE})
            except Exception:
                self.log.exception(self.failed, extra={"advice": _ADVICE})
            self._due_ms = self._next_ms()

    def _next_ms(self) -> int:
        return self._services.clock.steady_ms() + self._interval_ms()

    @abstractmethod
    def _interval_ms(self) -> int:
        """Returns the time between two rounds, by the current settings."""

    @abstractmethod
    async def _do_due(self) -> None:
        """Does a round that is due."""
