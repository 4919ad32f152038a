"""How much a client takes in a second, and how long it has to wait until it may go on, as Kafka counts.

`Rate` is for bytes and for the time of requests (KIP-13, KIP-124), `Tokens` for changes of topics (KIP-599).
Times are monotonic, in ms.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.quotas.samples import Samples


class Windows(NamedTuple):
    """Over how many windows, of how many ms each, rates are measured."""

    number: int = 11
    size_ms: int = 1000


class Rate:
    """What came in a second, over the last windows.

    A client that has just begun counts as one that took nothing before: what it took is divided by all
    windows but the last, and by the time since the oldest of them if that is longer.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples = Samples(windows.size_ms, windows.number)

    def record(self, size: float, now_ms: int) -> None:
        """Counts what a client has taken; a size below 0 takes it back."""
        self._samples.record(size, now_ms)

    def per_second(self, now_ms: int) -> float:
        """Returns the rate."""
        size, elapsed_ms = self._measured(now_ms)
        return size * 1000 / elapsed_ms

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long a client waits until the rate is down to a limit; 0 if it is not above it."""
        size, elapsed_ms = self._measured(now_ms)
        rate = size * 1000 / elapsed_ms
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether nothing counts any more."""
        return self._samples.measured(now_ms)[0] <= 0

    def _measured(self, now_ms: int) -> tuple[float, int]:
        """Returns what counts, and by how many ms it is divided."""
        size, elapsed_ms = self._samples.measured(now_ms)
        missing = self._windows.number - 1 - elapsed_ms // self._windows.size_ms
        return size, max(elapsed_ms + max(missing, 0) * self._windows.size_ms, 1)


class Tokens:
    """A token bucket: it fills at the limit, up to what comes in all windows, and may be overdrawn.

    It is full at first.
    """

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = float("inf")
        self._at_ms = 0

    def left(self, limit: float, now_ms: int) -> float:
        """Returns the tokens that are left; below 0 if the bucket is overdrawn."""
        passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        most = limit * self._windows.number * self._windows.size_ms / 1000
        self._tokens = min(most, self._tokens + limit * passed_ms / 1000)
        return self._tokens

    def take(self, tokens: float, limit: float, now_ms: int) -> None:
        """Takes tokens, even more than are left."""
        self._tokens = self.left(limit, now_ms) - tokens

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long it takes until the bucket is not overdrawn; 0 if it is not."""
        return max(0, round(-self.left(limit, now_ms) / limit * 1000))
