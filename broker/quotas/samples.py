"""A sum over the last windows of time: Kafka's `SampledStat`."""

from __future__ import annotations


class _Window:
    """The sum of one window, when the window began, and when the last value was added."""

    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0.0


class Samples:
    """The sum over the last `windows` windows of `window_ms` each. Times are monotonic, in ms."""

    __slots__ = ("_at", "_most", "_window_ms", "_windows", "span_ms")

    def __init__(self, window_ms: int, windows: int) -> None:
        self._window_ms = window_ms
        self.span_ms = window_ms * windows
        self._most = windows + 1  # one of them reaches back beyond the span
        self._windows: list[_Window] = []
        self._at = 0

    def record(self, size: float, now_ms: int) -> None:
        """Adds `size`; a negative one subtracts what was added before."""
        windows = self._windows
        if not windows:
            windows.append(_Window(now_ms))
        window = windows[self._at]
        if now_ms - window.start_ms >= self._window_ms:
            self._at = (self._at + 1) % self._most
            if self._at == len(windows):
                windows.append(_Window(now_ms))
            window = windows[self._at]
            window.begin(now_ms)
        window.size += size
        window.last_ms = now_ms

    def measured(self, now_ms: int) -> tuple[float, int]:
        """Returns the sum, and the ms since its oldest window began; drops older windows."""
        windows = self._windows
        if not windows:
            windows.append(_Window(now_ms))  # Kafka's first window begins when it is first read
        for window in windows:
            if now_ms - window.last_ms >= self.span_ms:
                window.begin(now_ms)
        size = sum(window.size for window in windows)
        return size, now_ms - min(window.start_ms for window in windows)
