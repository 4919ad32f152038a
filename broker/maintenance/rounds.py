"""Rounds of work that come due by the broker's clock, one after another.

A round that fails is told in the log, and the next one comes due as if it had not: the loop ends only when it
is cancelled. However far the clock was stepped, one round has come due.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from protocol.errors import BrokerError

if TYPE_CHECKING:
    import logging

    from broker.node import Node


class DueRounds(ABC):
    """The rounds of one node; who does a round that somebody asked for holds the lock, too."""

    log: ClassVar[logging.Logger]
    failed: ClassVar[str]  # what the log says of a round that did

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = asyncio.Lock()
        self._due_ms = self._next_ms()

    async def run(self) -> None:
        """Do what is due, again and again."""
        while True:
            await self._node.clock.reached(self._due_ms)
            await self.catch_up()

    async def catch_up(self) -> None:
        """Do the round that has come due, if one has."""
        async with self._lock:
            if self._node.clock.steady_ms() < self._due_ms:
                return
            try:
                await self._do_due()
            except BrokerError as error:  # the next round may go better; the loop must not end
                self.log.error("%s: %s", self.failed, error.message)  # noqa: TRY400 - the sentence says it
            except Exception:
                self.log.exception(self.failed)
            self._due_ms = self._next_ms()

    def _next_ms(self) -> int:
        return self._node.clock.steady_ms() + self._interval_ms()

    @abstractmethod
    def _interval_ms(self) -> int:
        """How long after one round the next is due, by the settings of now."""

    @abstractmethod
    async def _do_due(self) -> None:
        """Do a round that nobody asked for."""
