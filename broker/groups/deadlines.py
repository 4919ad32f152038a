"""The one timer of all groups: it calls a group when the next of its deadlines has come."""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.clock import Clock

log = logging.getLogger("tidelog.groups")


class Deadlines:
    """The next deadline of each group, in ms of the clock that never goes back."""

    def __init__(self, clock: Clock, reached: Callable[[str, int], None]) -> None:
        """`reached` is called with a group's id and the time; it may set a deadline again."""
        self._clock = clock
        self._reached = reached
        self._due: list[tuple[int, str]] = []  # a heap of deadlines, some of them outdated
        self._next: dict[str, int] = {}  # the current deadline of each group
        self._woken = asyncio.Event()

    def set(self, group_id: str, at_ms: int | None) -> None:
        """Sets a group's next deadline, unless it has an earlier one. None changes nothing.

        An outdated entry of the heap is ignored when it comes up.
        """
        known_ms = self._next.get(group_id)
        if at_ms is None or (known_ms is not None and known_ms <= at_ms):
            return
        self._next[group_id] = at_ms
        heapq.heappush(self._due, (at_ms, group_id))
        self._woken.set()

    def forget(self, group_id: str) -> None:
        """Drops a group's deadline."""
        self._next.pop(group_id, None)

    async def run(self) -> None:
        """Calls the groups whose deadline has come, until cancelled."""
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
            at_ms, group_id = heapq.heappop(self._due)
            if self._next.get(group_id) != at_ms:
                continue
            del self._next[group_id]
            try:
                self._reached(group_id, now_ms)
            except Exception:  # one group must not stop the timer of the others
                log.exception("group failed at its time", extra={"group": group_id})
