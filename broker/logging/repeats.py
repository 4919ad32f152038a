"""Limits repeated log lines: decides which are logged, and counts the others.

A client that requests an unknown API or version reconnects at once, thousands of times. Of the lines with
the same source and the same text the first `SHOWN` in a span of `SPAN_S` are to be logged, and, once the span
is over, the number of the others. Clients choose texts, and have many addresses: all lines beyond `MOST_KEYS`
different ones count as one more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHOWN: Final = 10
SPAN_S: Final = 60.0
OTHERS: Final = "other lines not logged"
"""The source and the text of the lines beyond `MOST_KEYS`."""
MOST_KEYS = 4_000  # pairs of source and text that are counted apart


class Repeated(NamedTuple):
    """A line that was not logged each time: its source, its text, and how often it was left out."""

    source: str
    text: str
    times: int


class Repeats:
    """Counts texts by their source, such as refusals by the client's host."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, str], float] = {}
        self._times: dict[tuple[str, str], int] = {}

    def is_shown(self, source: str, text: str, now_s: float) -> bool:
        """Counts a text at `now_s` of the monotonic clock; returns whether to log it."""
        key = (source, text)
        if key not in self._since_s and len(self._since_s) >= MOST_KEYS:
            key = (OTHERS, OTHERS)
        self._since_s.setdefault(key, now_s)
        times = self._times[key] = self._times.get(key, 0) + 1
        return times <= SHOWN

    def take_repeated(self, now_s: float) -> list[Repeated]:
        """Drops the counts that are older than the span; returns those of lines that were left out."""
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
