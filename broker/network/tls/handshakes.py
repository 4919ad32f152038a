"""The part of the event loop that TLS handshakes may use, shared by address.

A handshake costs the broker a signature, which is far more than a peer needs to begin one: whoever began
thousands of them in a second would have the loop to themselves. So all of them together get `SHARE` of the
loop's time, and the steps beyond it wait. Addresses have their turns one after the other, however many
handshakes each has begun.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.clock import Clock

HANDSHAKE_S: Final = 10.0
"""How long a handshake may take, with the time for which it waits for its turn."""
SHARE: Final = 0.25
_MOST_CREDIT_S: Final = 0.005  # of the loop's time, for handshakes after a pause


class Handshakes:
    """The steps of handshakes that wait for their turn, by the address of their peers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._credit_s = _MOST_CREDIT_S
        self._counted_s = clock.monotonic_s()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # in the order of their turns
        self._timer: asyncio.TimerHandle | None = None

    def run(self, host: str, step: Callable[[], None]) -> None:
        """Runs a step now if no other waits and the share is not used up, else in its turn."""
        if self._waiting or not self._has_credit():
            self._waiting.setdefault(host, deque()).append(step)
            self._wait()
        else:
            self._measure(step)

    def _has_credit(self) -> bool:
        now_s = self._clock.monotonic_s()
        gained_s = SHARE * (now_s - self._counted_s)
        self._credit_s = min(self._credit_s + gained_s, _MOST_CREDIT_S)
        self._counted_s = now_s
        return self._credit_s > 0

    def _measure(self, step: Callable[[], None]) -> None:
        began_s = self._clock.monotonic_s()
        step()
        self._credit_s -= self._clock.monotonic_s() - began_s

    def _wait(self) -> None:
        if self._timer is None:
            wait_s = max(0.0, -self._credit_s / SHARE)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._go_on)

    def _go_on(self) -> None:
        """Runs the next steps, one of each address in turn."""
        self._timer = None
        while self._waiting and self._has_credit():
            host = next(iter(self._waiting))
            steps = self._waiting.pop(host)
            step = steps.popleft()
            if steps:
                self._waiting[host] = steps  # behind the others
            self._measure(step)
        if self._waiting:
            self._wait()
