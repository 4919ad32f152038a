"""What happens again and again, so that it is logged a few times and then counted.

A client that asks blindly for an API or a version connects again at once, thousands of times. Of what has
the same source and the same text the first `SHOWN` in a span of `SPAN_S` are to be logged, and then, once
the span is over, how many more there were. Clients choose texts, and have many addresses: what comes when
`MOST_KEYS` are known counts as one text more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHOWN: Final = 10
SPAN_S: Final = 60.0
OTHERS: Final = "more than are told apart"
"""The source and the text of what comes when there are too many."""
MOST_KEYS = 4_000  # sources and texts that are told apart


class Repeated(NamedTuple):
    """What was not logged each time: its source, its text, and how often it was left out."""

    source: str
    text: str
    times: int


class Repeats:
    """Counts texts by their source, such as refusals by the client's host."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, str], float] = {}
        self._times: dict[tuple[str, str], int] = {}

    def is_shown(self, source: str, text: str, now_s: float) -> bool:
        """Counts a text at a time of the monotonic clock; returns whether to log it."""
        key = (source, text)
        if key not in self._since_s and len(self._since_s) >= MOST_KEYS:
            key = (OTHERS, OTHERS)
        self._since_s.setdefault(key, now_s)
        times = self._times[key] = self._times.get(key, 0) + 1
        return times <= SHOWN

    def take_repeated(self, now_s: float) -> list[Repeated]:
        """Forgets what is older than the span; returns what of that was left out of the log."""
        over = []
        for key, since_s in self._since_s.items():  # the oldest first
            if now_s < since_s + SPAN_S:
                break
            over.append(key)
        found = []
        for key in over:
            del self._since_s[key]
            left_out = self._times.pop(key) - SHOWN
            if left_out > 0:
                found.append(Repeated(*key, left_out))
        return found
