"""The replay engine: copies columns from a source to batches of a topic.

There is one task for each target partition. A source is any picklable object with `read()`. It
yields rows in an order that never changes: columns in the layout of `protocol.records.columns`, and
the source offset of each row. The result is an `Outcome` for each partition: how many records the
target has, and where each of them is. A task may be retried, or run twice at once. Each attempt
asks the target how many records it has (`pipeline.replay.delivery`), skips those and continues.
"""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from tidelog.client import Client, ClientError, ClusterUnreachable, Fenced, SequenceGap
from tidelog.client.sync_connection import NOTICE_S
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.replay import delivery as deliveries
from tidelog.pipeline.replay import identities
from tidelog.pipeline.replay.comparing import Tail
from tidelog.pipeline.replay.offset_map import PartitionMap
from tidelog.pipeline.source.splits import SourceError
from tidelog.protocol.records.column_batches import BATCH_LIMIT, encode_batches
from tidelog.protocol.records.layout import CODEC_MASK
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tidelog.pipeline.progress import Progress
    from tidelog.pipeline.replay.delivery import Delivery, PartitionWriter
    from tidelog.pipeline.session import TaskSession
    from tidelog.protocol.records.columns import ColumnBuffers

AS_SOURCE: Final = -1  # the codec of the batches that the rows come from
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_log: Final = logging.getLogger("tidelog.pipeline")
_ATTRIBUTES: Final = 5  # an index of a column in `Rows.batches`


class Rows(Protocol):
    """Some records; `pipeline.source.columns.Columns` is one implementation."""

    @property
    def count(self) -> int:
        """The number of records."""

    @property
    def buffers(self) -> ColumnBuffers:
        """The columns."""

    @property
    def offset(self) -> npt.NDArray[np.int64]:
        """The source offset of each record, ascending."""


class ReplaySource(Protocol):
    """The records for one target partition. Every `read` yields the same rows."""

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""

    def read(self) -> Iterator[Rows]:
        """Yields the rows, in order. Raises PipelineError, SourceError and OSError."""


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one task. `changes_times`: the target may give records other times."""

    brokers: str
    topic: str
    partition: int
    delivery: Delivery
    source: ReplaySource
    source_topic: str
    source_partition: int
    compression: int = AS_SOURCE
    batch_limit: int = BATCH_LIMIT
    changes_times: bool = False
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task: the target has `count` records of the run, `found` of them from before.

    `error` is a sentence if the task stopped; the other fields are right up to there. `doubts` are
    sentences about what is uncertain. `restarts` is how often the target had other records than the
    task expected.
    """

    topic: str
    partition: int
    count: int
    found: int
    map: PartitionMap
    seconds: float
    cpu_seconds: float
    error: str | None = None
    doubts: tuple[str, ...] = ()
    restarts: int = 0


def replay(session: TaskSession, tasks: Sequence[Task], progress: Progress) -> list[Outcome]:
    """Runs the tasks, and shows progress by asking the targets. Raises what Spark raises."""
    topics = {one.topic for one in tasks}
    with ExitStack() as stack:
        known = {}
        if tasks:
            client = stack.enter_context(Client(tasks[0].brokers))
            known = identities.ids_of(client, topics)
        watch = stack.enter_context(_Watch(session, tasks, progress))
        outcomes: list[Outcome] = session.run(
            replay_partition,
            tasks,
            watch=watch.look,
            sizes=[one.source.size_bytes for one in tasks],
        )
        progress.update(sum(one.count for one in outcomes))
        other = identities.made_anew(client, known) if tasks else []
    return [
        replace(one, error=one.error or identities.sentence(one.topic, "target"))
        if one.topic in other
        else one
        for one in outcomes
    ]


def stopped(outcomes: Sequence[Outcome], topics: Collection[str]) -> list[Outcome]:
    """Returns the outcomes, with an error for each of these source topics.

    They were created again since the plan.
    """
    return [
        replace(one, error=one.error or identities.sentence(one.map.source_topic, "source"))
        if one.map.source_topic in topics
        else one
        for one in outcomes
    ]


def replay_partition(task: Task) -> Outcome:
    """Does one task; returns its outcome.

    Errors that may pass are raised, so that Spark retries the task; other errors are in the
    outcome.
    """
    began_s, cpu_s = time.monotonic(), time.process_time()
    patience = _Patience(task.timeout_s)
    while True:
        error = None
        with Client(task.brokers, timeout_s=task.timeout_s) as client:
            written = deliveries.writer(client, task.topic, task.partition, task.delivery)
            try:
                _replay(task, written)
            except SequenceGap as gap:  # two tasks write, or the log was cut
                error = patience.sentence(gap)
                if patience.is_left(written.kept()[0]):
                    continue
            except (ClusterUnreachable, Fenced):
                raise  # Spark retries it, unless this is the older of two tasks
            except (PipelineError, ClientError, SourceError) as failure:
                error = str(failure)
            break
    count, runs = written.kept()
    return Outcome(
        task.topic,
        task.partition,
        count,
        written.found,
        PartitionMap(
            task.source_topic,
            task.source_partition,
            task.topic,
            task.partition,
            runs,
            written.map_is_complete,
        ),
        time.monotonic() - began_s,
        time.process_time() - cpu_s,
        error,
        tuple(written.doubts),
        patience.restarts,
    )


class _Patience:
    """Decides how long a task may begin again: `timeout_s` seconds after the last new record."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._most = -1
        self._since_s = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        self.restarts = 0

    def is_left(self, done: int) -> bool:
        """Pauses, longer each time; returns False if time is up.

        `done` records were there at the stop.
        """
        now_s = time.monotonic()
        if done > self._most:
            self._most, self._since_s, self._pause_s = done, now_s, _FIRST_PAUSE_S
        if now_s + self._pause_s > self._since_s + self._timeout_s:
            return False
        self.restarts += 1
        time.sleep(self._pause_s * (0.5 + random.random() / 2))  # noqa: S311 - spreads two tasks
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True

    def sentence(self, gap: SequenceGap) -> str:
        """Returns what is wrong if it stays so."""
        return (
            f"{gap}; started over {some(self.restarts, 'time')}, and nothing more was written for"
            f" {self._timeout_s:g} s: another process writes with this run's producer, or the log was"
            " truncated"
        )


def _replay(task: Task, written: PartitionWriter) -> None:
    """Skips the records in the target, and writes the rest."""
    there = written.begin()
    tail = Tail(written.where, with_time=not task.changes_times)
    number = 0
    for rows in task.source.read():
        first = min(rows.count, there - number) if number < there else 0
        if first:
            written.skip(rows.offset[:first], number)
            tail.add(rows.buffers, first)
            number += first
            if number == there:
                written.compare(tail)
        if first == rows.count:
            continue
        offsets = rows.offset
        for batch in encode_batches(
            rows.buffers,
            first,
            rows.count,
            producer=written.producer,
            base_sequence=written.sequence(number),
            compression=_codec(task, rows),
            limit=task.batch_limit,
        ):
            written.append(batch, offsets[batch.start : batch.end])
            number += batch.end - batch.start
    if number < there:
        raise PipelineError(
            f"{written.where} has {some(there, 'record')} where the run reads {number}: somebody else has"
            " written there, or the source has lost records since the run began; begin a new run with a topic"
            " of its own"
        )
    written.finish()


def _codec(task: Task, rows: Rows) -> int:
    if task.compression != AS_SOURCE:
        return task.compression
    batches = getattr(rows, "batches", None)
    return 0 if batches is None or not len(batches) else int(batches[0, _ATTRIBUTES]) & CODEC_MASK


class _Watch:
    """Asks the targets for their progress."""

    def __init__(self, session: TaskSession, tasks: Sequence[Task], progress: Progress) -> None:
        self._session = session
        self._tasks = tasks
        self._progress = progress
        self._client: Client | None = None
        self._silent_since_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def look(self, _done_bytes: int) -> None:
        """Shows how many records the targets have; a target that does not answer is logged once."""
        if not self._tasks:
            return
        if self._client is None:
            self._client = Client(self._tasks[0].brokers, timeout_s=1.0)
        try:
            done = sum(
                max(
                    0, self._client.end_offset(one.topic, one.partition) - one.delivery.start_offset
                )
                for one in self._tasks
            )
        except ClientError as error:
            self._tell(error)
        else:
            self._silent_since_s = None
            self._progress.update(done)

    def _tell(self, error: ClientError) -> None:
        """Logs once that the tasks wait for a target, where Spark's workers would log it unseen."""
        if not self._session.has_spark:
            return
        now_s = time.monotonic()
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s >= self._silent_since_s + NOTICE_S:
            _log.warning("%s; still trying", error)
            self._silent_since_s = math.inf
