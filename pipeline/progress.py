"""Shows the progress of a job: one line that is updated on a terminal, JSON lines anywhere else.

    with Progress("mirror", total=2_000_000) as progress:
        progress.update(150_000)

`done` is a total, in the given unit. The rate is that of about the last ten seconds, and the
remaining time is computed from it. There is at most one line every two seconds, and one at the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_EVERY_S: Final = 2.0
_WINDOW_S: Final = 10.0


class Progress:
    """The progress of one job; `total` is None if it is unknown."""

    def __init__(
        self,
        job: str,
        total: int | None,
        *,
        unit: str = "records",
        stream: TextIO | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self.total = total
        self.unit = unit
        self.done = 0
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._now_s = now_s
        self._began_s = now_s()
        self._shown_s = self._began_s
        self._seen = deque([(self._began_s, 0)])
        self._note = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def update(self, done: int, note: str = "") -> None:
        """Sets the total done so far; `note` is shown beside it."""
        now_s = self._now_s()
        self.done = done
        self._note = note
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and self._seen[1][0] < now_s - _WINDOW_S:
            self._seen.popleft()
        if now_s - self._shown_s >= _EVERY_S:
            self._shown_s = now_s
            self._show("running")

    def close(self, *, failed: bool = False) -> None:
        """Shows the last line, with the rate over the whole time."""
        self._show("failed" if failed else "done")

    @property
    def rate_per_s(self) -> float:
        """The recent rate per second."""
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Returns the seconds left at this rate, or None if that is unknown."""
        if self.total is None or self.rate_per_s <= 0:
            return None
        return max(0.0, (self.total - self.done) / self.rate_per_s)

    def _show(self, state: str) -> None:
        elapsed_s = self._now_s() - self._began_s
        is_over = state != "running"
        rate = (self.done / elapsed_s if elapsed_s > 0 else 0.0) if is_over else self.rate_per_s
        left_s = None if is_over else self.left_s
        if self._is_terminal:
            self._stream.write("\r\x1b[2K" + self._line(state, rate, left_s, elapsed_s))
            if is_over:
                self._stream.write("\n")
        else:
            fields = {
                "job": self.job,
                "state": state,
                "done": self.done,
                "total": self.total,
                "unit": self.unit,
                "per_second": round(rate),
                "seconds": round(elapsed_s, 1),
                "seconds_left": None if left_s is None else round(left_s, 1),
                "note": self._note,
            }
            self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()

    def _line(self, state: str, rate: float, left_s: float | None, elapsed_s: float) -> str:
        parts = [self.job]
        if self.total:
            parts.append(f"{min(100, 100 * self.done // self.total)}%")
        of = "" if self.total is None else f" of {self.total:,}"
        parts.append(f"{self.done:,}{of} {self.unit}")
        parts.append(f"{rate:,.0f}/s")
        if left_s is not None:
            parts.append(f"{_span(left_s)} left")
        if state != "running":
            parts.append(f"{state} in {_span(elapsed_s)}")
        if self._note:
            parts.append(self._note)
        return "  ".join(parts)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
