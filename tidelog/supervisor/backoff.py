"""How long a broker that has died stays down before it is started again."""

from __future__ import annotations

FIRST_S = 0.25
LONGEST_S = 30.0
HEALTHY_S = 60.0


class Backoff:
    """The delays of one broker: they double with each death, up to a limit.

    A broker that was up for a minute begins with the shortest delay again.
    """

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def delay_s(self, up_s: float) -> float:
        """Returns the delay after a death; `up_s` says how long the broker had been up."""
        if up_s >= HEALTHY_S:
            self._next_s = FIRST_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_S)
        return delay_s
