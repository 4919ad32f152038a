"""Rounds of retention: by the clock, and when somebody asks.

A round comes due when log.retention.check.interval.ms of the broker's clock have passed, whether they
went by or were stepped over: a step over seven days is one round. Who asks for a round gets what was
deleted and why, what the rounds in between deleted included, so that nobody misses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.node import Node
    from storage.retention import Deletion

log = logging.getLogger("tidelog.retention")

_MOST_UNTOLD = 10_000

_Result = TypeVar("_Result")


class Swept(NamedTuple):
    """A segment that went, of which partition, and whether somebody asked or the time had come."""

    topic: str
    partition: int
    deletion: Deletion
    asked: bool


class Rounds:
    """The rounds of one node, one after another."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = asyncio.Lock()
        self._untold: deque[Swept] = deque(maxlen=_MOST_UNTOLD)
        self._due_ms = self._next_ms()

    def _next_ms(self) -> int:
        return self._node.clock.steady_ms() + self._node.config.log_retention_check_interval_ms

    async def run(self) -> None:
        """Delete what is due, again and again."""
        while True:
            await self._node.clock.reached(self._due_ms)
            await self.catch_up()

    async def catch_up(self) -> None:
        """Do the round that has come due, if one has."""
        async with self._lock:
            if self._node.clock.steady_ms() < self._due_ms:
                return
            try:
                self._untold += await self._round(None, asked=False)
            except Exception:  # the next round may go better; the loop must not end
                log.exception("retention failed")
            self._due_ms = self._next_ms()

    async def sweep(self, topic: str | None = None) -> list[Swept]:
        """Do a round now, of one topic or of all; what went since the last one that was asked for."""
        async with self._lock:
            told = [*self._untold, *await self._round(topic, asked=True)]
            self._untold.clear()
            if topic is not None:
                self._untold += (swept for swept in told if swept.topic != topic)
                told = [swept for swept in told if swept.topic == topic]
            return told

    async def _round(self, topic: str | None, *, asked: bool) -> list[Swept]:
        deleted = await finished(lambda: self._node.apply_retention(topic))
        return [Swept(*each, asked) for each in deleted]


async def finished(work: Callable[[], _Result]) -> _Result:
    """Run in a thread to its end: a thread cannot be called back, and the logs close after it."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise
