"""The replay engine: copies columns from a source to batches of a topic.

There is one task for each target partition. A source is any picklable object with `read()`. It
yields rows in an order that never changes: columns in the layout of `protocol.records.columns`, and
the source offset of each row. The result is an `Outcome` for each partition: how many records the
target has, and where each of them is. A task may be retried, or run twice at once. Each attempt
asks the target how many records it has (`pipeline.replay.delivery`), skips those and continues.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from client import Client, ClientError, ClusterUnreachable, Fenced, SequenceGap
from pipeline.errors import PipelineError
from pipeline.replay import delivery as deliveries
from pipeline.replay import identities
from pipeline.replay.comparing import Tail
from pipeline.replay.offset_map import PartitionMap
from pipeline.source.splits import SourceError
from protocol.records.column_batches import BATCH_LIMIT, encode_batches
from protocol.records.layout import CODEC_MASK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from pipeline.progress import Progress
    from pipeline.replay.delivery import Delivery, Writer
    from pipeline.session import Session
    from protocol.records.columns import ColumnBuffers

AS_SOURCE: Final = -1  # the codec of the batches the rows come from
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_ATTRIBUTES: Final = 5  # a column of `Rows.batches`


class Rows(Protocol):
    """Some records; `pipeline.source.columns.Columns` are such rows."""

    @property
    def count(self) -> int:
        """How many."""

    @property
    def buffers(self) -> ColumnBuffers:
        """The columns."""

    @property
    def offset(self) -> npt.NDArray[np.int64]:
        """Where each record is in the source; ascending."""


class Source(Protocol):
    """Where the records of one target partition come from. Every `read` yields the same rows."""

    def read(self) -> Iterator[Rows]:
        """Yield the rows, in order. Raises PipelineError, SourceError and OSError."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one task does. `is_stamped`: the target gives records times of its own (LogAppendTime)."""

    brokers: str
    topic: str
    partition: int
    delivery: Delivery
    source: Source
    source_topic: str
    source_partition: int
    compression: int = AS_SOURCE
    batch_limit: int = BATCH_LIMIT
    is_stamped: bool = False
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: `count` records of the run are there, `found` of them were before it began.

    `error` is a sentence where it stopped; what is there is right as far as it goes. `doubts` are
    sentences of what nobody knows; `restarts`: how often the target had other records than the task thought.
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


def replay(session: Session, tasks: Sequence[Task], progress: Progress) -> list[Outcome]:
    """Run the tasks, and say how far they are by asking the targets. Raises what Spark raises."""
    topics = {one.topic for one in tasks}
    with ExitStack() as stack:
        known = {}
        if tasks:
            client = stack.enter_context(Client(tasks[0].brokers))
            known = identities.ids_of(client, topics)
        watch = stack.enter_context(_Watch(tasks, progress))
        outcomes: list[Outcome] = session.run(replay_partition, tasks, watch=watch.look)
        progress.update(sum(one.count for one in outcomes))
        other = identities.made_anew(client, known) if tasks else []
    return [
        replace(one, error=one.error or identities.sentence(one.topic, "target"))
        if one.topic in other
        else one
        for one in outcomes
    ]


def stopped(outcomes: Sequence[Outcome], topics: Collection[str]) -> list[Outcome]:
    """The outcomes, where these topics of the source are not those that were planned."""
    return [
        replace(one, error=one.error or identities.sentence(one.map.source_topic, "source"))
        if one.map.source_topic in topics
        else one
        for one in outcomes
    ]


def replay_partition(task: Task) -> Outcome:
    """Do one task. Trouble that may pass is raised, so that Spark tries again; the rest is in the outcome."""
    began_s, cpu_s = time.monotonic(), time.process_time()
    patience = _Patience(task.timeout_s)
    while True:
        error = None
        with Client(task.brokers, timeout_s=task.timeout_s) as client:
            written = deliveries.writer(client, task.topic, task.partition, task.delivery)
            try:
                _replay(task, written)
            except SequenceGap as gap:  # another task of this run writes too, or the log was cut
                error = patience.sentence(gap)
                if patience.is_left(written.kept()[0]):
                    continue
            except (ClusterUnreachable, Fenced):
                raise  # for Spark to try again, unless it is the older of two tasks
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
    """How long a task begins anew: while records arrive, by whomever, else until `timeout_s` have gone by."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._most = -1
        self._since_s = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        self.restarts = 0

    def is_left(self, done: int) -> bool:
        """Pause, longer each time, unless time is up. `done` records were there when it stopped."""
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
        """What is wrong, if it stays so."""
        return (
            f"{gap}; begun anew {self.restarts} times, and nothing more got there for"
            f" {self._timeout_s:g} s: somebody else writes with this run's producer, or the log was cut"
        )


def _replay(task: Task, written: Writer) -> None:
    """Pass over what is there, and write the rest."""
    there = written.begin()
    tail = Tail(written.where, with_time=not task.is_stamped)
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
            f"{written.where} has {there} records where the run reads {number}: somebody else has written"
            " there, or the source has lost records since the run began; begin a new run with a topic of its"
            " own"
        )
    written.finish()


def _codec(task: Task, rows: Rows) -> int:
    if task.compression != AS_SOURCE:
        return task.compression
    batches = getattr(rows, "batches", None)
    return 0 if batches is None or not len(batches) else int(batches[0, _ATTRIBUTES]) & CODEC_MASK


class _Watch:
    """Asks the targets how far they are."""

    def __init__(self, tasks: Sequence[Task], progress: Progress) -> None:
        self._tasks = tasks
        self._progress = progress
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def look(self) -> None:
        """Say how many records are there; a target that does not answer is no reason to stop."""
        if not self._tasks:
            return
        if self._client is None:
            self._client = Client(self._tasks[0].brokers, timeout_s=1.0)
        with suppress(ClientError):
            done = sum(
                max(
                    0, self._client.end_offset(one.topic, one.partition) - one.delivery.start_offset
                )
                for one in self._tasks
            )
            self._progress.update(done)
