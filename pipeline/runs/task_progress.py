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
    """Shows progress; yields a function that `Session.run` calls now and then."""
    with Progress(job, total, unit=unit) as progress:
        yield lambda: progress.update(_done(session, total))
        progress.update(total)


def _done(session: Session, total: int) -> int:
    """Returns about how much is done, as if all tasks were equally large."""
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
