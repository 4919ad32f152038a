"""Shows the progress of tasks by the sizes of those that have ended."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pipeline.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def watching(job: str, total: int, *, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """Shows progress; yields a function that `Session.run` calls now and then."""
    with Progress(job, total, unit=unit) as progress:
        yield lambda done: progress.update(min(done, total))
        progress.update(total)
