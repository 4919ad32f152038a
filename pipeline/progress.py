"""Shows the progress of a job: a bar by rich on a terminal, JSON lines anywhere else.

    with Progress("mirror", total=2_000_000) as progress:
        progress.update(150_000)

`done` is a total, in the given unit, and never shown above the total that was planned: a target that is
asked how far it is counts markers of transactions too. The rate is that of about the last ten
seconds, and the remaining time is computed from it. The terminal is drawn twice a second. There is
at most one JSON line every two seconds, and one at the end.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from tidelog.pipeline.report.output import progress_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from rich.progress import Progress as Bar

_EVERY_S: Final = 2.0
_DRAWN_S: Final = 0.5
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
        self._stream = progress_stream() if stream is None else stream
        self._bar = _bar(self._stream) if self._stream.isatty() else None
        self._every_s = _EVERY_S if self._bar is None else _DRAWN_S
        self._now_s = now_s
        self._began_s = now_s()
        self._shown_s = self._began_s
        self._seen = deque([(self._began_s, 0)])
        self._note = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def begin(self, note: str) -> None:
        """Shows a first line at once, with a note."""
        self._note = note
        self._show("running")

    def update(self, done: int, note: str = "") -> None:
        """Sets the total done so far; `note` is shown beside it."""
        now_s = self._now_s()
        self.done = done if self.total is None else min(done, self.total)
        self._note = note
        self._seen.append((now_s, self.done))
        while len(self._seen) > 2 and self._seen[1][0] < now_s - _WINDOW_S:
            self._seen.popleft()
        if now_s - self._shown_s >= self._every_s:
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
        if self._bar is not None:
            self._draw(state, rate, left_s, elapsed_s)
            return
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

    def _draw(self, state: str, rate: float, left_s: float | None, elapsed_s: float) -> None:
        bar = self._bar
        assert bar is not None
        of = "" if self.total is None else f" of {self.total:,}"
        words = [f"{self.done:,}{of} {self.unit}", f"{rate:,.0f}/s"]
        if left_s is not None:
            words.append(f"{_span(left_s)} left")
        if state != "running":
            words.append(f"{state} in {_span(elapsed_s)}")
        if self._note:
            words.append(self._note)
        if not bar.tasks:
            bar.start()
            bar.add_task(self.job, total=self.total, said="")
        # An unknown total makes a bar that moves; a known one of 0 is reached at once.
        total, done = (1, 1) if self.total == 0 else (self.total, self.done)
        bar.update(bar.tasks[0].id, completed=done, total=total, said="  ".join(words))
        bar.refresh()
        if state != "running":
            bar.stop()


def _bar(stream: TextIO) -> Bar:
    """Returns a bar that is drawn when it is told to; the words beside it are ours."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Made

    return Made(
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TaskProgressColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        console=Console(file=stream),
        auto_refresh=False,
        redirect_stdout=False,  # what a job prints is its result, and goes where the user sent it
        redirect_stderr=False,
    )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
