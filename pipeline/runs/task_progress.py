"""Shows the progress of tasks by the sizes of those that have ended, and says where they wait."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Final

from tidelog.client import Client, ClientError
from tidelog.client.sync_connection import NOTICE_S
from tidelog.pipeline.progress import Progress
from tidelog.pipeline.source.splits import RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.pipeline.session import TaskSession

_log: Final = logging.getLogger("tidelog.pipeline")
_PATIENCE_S: Final = 1.0


@contextlib.contextmanager
def watching(
    job: str, total: int, session: TaskSession, *, unit: str = "bytes", brokers: str | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows progress; yields a function that `TaskSession.run` calls now and then.

    Brokers do not report sizes. What is read from them has assumed ones, and is shown as records.
    If none of them answers while Spark's tasks make no progress, that is logged once.
    """
    each = 1 if brokers is None else RECORD_BYTES
    silence = None if brokers is None else _Silence(brokers, session)
    with Progress(job, total // each, unit=unit if brokers is None else "records") as progress:

        def look(done: int) -> None:
            progress.update(done // each)
            if silence is not None:
                silence.look(done)

        yield look
        progress.update(total // each)


class _Silence:
    """Notices that no broker answers. Tasks log that too, but Spark's workers where nobody looks."""

    def __init__(self, brokers: str, session: TaskSession) -> None:
        self._brokers = brokers
        self._session = session
        self._done = 0
        self._ask_at_s = time.monotonic() + NOTICE_S

    def look(self, done: int) -> None:
        """Asks the brokers, if nothing has been done for a while."""
        now_s = time.monotonic()
        if done != self._done and self._ask_at_s < math.inf:
            self._done, self._ask_at_s = done, now_s + NOTICE_S
        if now_s < self._ask_at_s or not self._session.has_spark:
            return
        self._ask_at_s = now_s + NOTICE_S
        try:
            with Client(self._brokers, timeout_s=_PATIENCE_S) as client:
                client.topics([])
        except ClientError as error:
            _log.warning("%s; still trying", error)
            self._ask_at_s = math.inf
