"""The one timer of a coordinator: it reports a key when the next of its deadlines is reached."""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.clock import Clock

_FEW = 1_000

log = logging.getLogger("tidelog.coordinators")


class Deadlines:
    """The next deadline of each key, in ms of the clock that never goes back."""

    def __init__(self, clock: Clock, reached: Callable[[str], None]) -> None:
        """`reached` is called with a key; it may set a deadline again."""
        self._clock = clock
        self._reached = reached
        self._due: list[tuple[int, str]] = []  # a heap of deadlines, some of them outdated
        self._next: dict[str, int] = {}  # the current deadline of each key
        self._woken = asyncio.Event()

    def set(self, key: str, at_ms: int | None) -> None:
        """Sets a key's next deadline, unless it has an earlier one. None changes nothing.

        An outdated entry of the heap is ignored when it comes up.
        """
        known_ms = self._next.get(key)
        if at_ms is None or (known_ms is not None and known_ms <= at_ms):
            return
        self._next[key] = at_ms
        heapq.heappush(self._due, (at_ms, key))
        self._woken.set()

    def delete(self, key: str) -> None:
        """Deletes a key's deadline; rebuilds the heap when most of its entries are outdated."""
        self._next.pop(key, None)
        if len(self._due) > 2 * len(self._next) + _FEW:
            self._due = [(at_ms, each) for each, at_ms in self._next.items()]
            heapq.heapify(self._due)

    async def run(self) -> None:
        """Reports the keys whose deadline is reached, until cancelled."""
        while True:
            self._woken.clear()
            self._tick()
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._woken.wait())]
            if self._due:
                waits.append(asyncio.ensure_future(self._clock.reached(self._due[0][0])))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _tick(self) -> None:
        now_ms = self._clock.steady_ms()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._due)
            if self._next.get(key) != at_ms:
                continue
            del self._next[key]
            try:
                self._reached(key)
            except Exception:  # one key must not stop the timer of the others
                log.exception("coordinator deadline failed", extra={"key": key})
