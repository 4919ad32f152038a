"""How far the clocks of leaders are behind the one of this broker, by their answers to its fetches.

Append times are those of a leader's clock. If that was in the past, and this broker leads next, what
was written minutes ago would be years old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api.fetch import NO_CLOCK
from tidelog.storage.time.corrections import TOLERANCE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

# A clock that was behind is no more once it is that much nearer than clocks may differ: at the limit it
# would be behind with one answer and not with the next, and followers note each change durably.
_NEARER_MS = 1_000


class LeaderClocks:
    """The clocks of the brokers that this one fetches from, as they were at their last answers."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is what the clock of this broker shows."""
        self._now_ms = now_ms
        self._behind_ms: dict[int, int] = {}

    def compare(self, leader: int, clock_ms: int) -> None:
        """Compares a leader's clock, as it was when the leader answered, with the own one."""
        if clock_ms == NO_CLOCK:  # an older broker does not send it
            self._behind_ms.pop(leader, None)
        else:
            limit_ms = TOLERANCE_MS - _NEARER_MS if self._behind_ms.get(leader) else TOLERANCE_MS
            behind_ms = self._now_ms() - clock_ms
            self._behind_ms[leader] = behind_ms if behind_ms > limit_ms else 0

    def behind_ms(self, leader: int) -> int:
        """Returns how far a leader's clock was behind; 0 for what clocks may differ by, or is unknown."""
        return self._behind_ms.get(leader, 0)
