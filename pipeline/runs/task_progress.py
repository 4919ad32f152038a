"""Shows the progress of Spark tasks by counting those that have ended."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pipeline.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.session import Session


@contextlib.contextmanager
def watching(
    session: Session, job: str, total: int, *, unit: str = "bytes"
) -> Iterator[Callable[[], None]]:
    """Show progress; what is given back is to be called now and then by `Session.run`."""
    with Progress(job, total, unit=unit) as progress:
        yield lambda: progress.update(_done(session, total))
        progress.update(total)


def _done(session: Session, total: int) -> int:
    """Return about how much has been done: tasks are taken for equally large."""
    if not session.has_spark:
        return 0
    tracker: Any = session.spark.sparkContext.statusTracker()
    tasks = done = 0
    for number in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(number)
        if stage is not None:
            tasks += stage.numTasks
            done += stage.numCompletedTasks
    return total * done // tasks if tasks else 0
