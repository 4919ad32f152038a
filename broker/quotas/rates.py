"""Rates of usage, and the throttle time until a rate is below its quota, as Kafka computes them.

`Rate` is for bytes and for the time of requests (KIP-13, KIP-124), `TokenBucket` for created and
deleted partitions (KIP-599).
Times are monotonic, in ms.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.quotas.samples import Samples


class Windows(NamedTuple):
    """The number and the size, in ms, of the windows over which rates are measured."""

    number: int = 11
    size_ms: int = 1000


class Rate:
    """The usage per second, over the last windows.

    A new client counts as one without usage before: its usage is divided by the time of all windows but
    the last, and by the time since the oldest of them if that is longer.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples = Samples(windows.size_ms, windows.number)

    def record(self, size: float, now_ms: int) -> None:
        """Adds the usage of a client; a negative size subtracts it."""
        self._samples.record(size, now_ms)

    def per_second(self, now_ms: int) -> float:
        """Returns the usage per second."""
        size, elapsed_ms = self._measured(now_ms)
        return size * 1000 / elapsed_ms

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns the throttle time in ms until the rate is down to a limit; 0 if it is not above it."""
        size, elapsed_ms = self._measured(now_ms)
        rate = size * 1000 / elapsed_ms
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether the windows have no usage."""
        return self._samples.measured(now_ms)[0] <= 0

    def _measured(self, now_ms: int) -> tuple[float, int]:
        """Returns the usage in the windows, and the ms by which it is divided."""
        size, elapsed_ms = self._samples.measured(now_ms)
        missing = self._windows.number - 1 - elapsed_ms // self._windows.size_ms
        return size, max(elapsed_ms + max(missing, 0) * self._windows.size_ms, 1)


class TokenBucket:
    """A token bucket: tokens are added at the rate of the limit, up to those of all windows.

    The bucket is full at first, and may be overdrawn.
    """

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = float("inf")
        self._at_ms = 0

    def remaining(self, limit: float, now_ms: int) -> float:
        """Returns the remaining tokens; negative if the bucket is overdrawn."""
        passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        most = limit * self._windows.number * self._windows.size_ms / 1000
        self._tokens = min(most, self._tokens + limit * passed_ms / 1000)
        return self._tokens

    def record(self, tokens: float, limit: float, now_ms: int) -> None:
        """Removes tokens, even more than remain."""
        self._tokens = self.remaining(limit, now_ms) - tokens

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time in ms until the bucket is not overdrawn; 0 if it is not."""
        return max(0, round(-self.remaining(limit, now_ms) / limit * 1000))
