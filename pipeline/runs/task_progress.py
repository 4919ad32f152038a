"""Shows the progress of tasks by the sizes of those that have ended."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pipeline.progress import Progress
from pipeline.source.splits import RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def watching(
    job: str, total: int, *, unit: str = "bytes", brokers: str | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows progress; yields a function that `Session.run` calls now and then.

    Brokers do not report sizes. What is read from them has assumed ones, and is shown as records.
    """
    each = 1 if brokers is None else RECORD_BYTES
    with Progress(job, total // each, unit=unit if brokers is None else "records") as progress:
        yield lambda done: progress.update(done // each)
        progress.update(total // each)
