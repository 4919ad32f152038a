"""The replay engine: columns from a source, batches to a topic, one task for each target partition.

A source is anything picklable with `read()`, which yields rows in an order that never changes: columns in
the layout of `protocol.records.columns`, and the offset each row has in the source. What comes back is an
`Outcome` for each partition: how many records are there, and where each went. A task that is tried again,
or that runs twice at once, asks the target where it stands (`pipeline.delivery`), passes over what is
there, and goes on.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from crc32c import crc32c

from pipeline import delivery as deliveries
from pipeline.client import Client, ClientError, ClusterUnreachable
from pipeline.errors import PipelineError
from pipeline.offset_map import PartitionMap
from pipeline.producing import Fenced, SequenceGap
from pipeline.source.splits import SourceError
from protocol.records import kernels
from protocol.records.column_batches import BATCH_LIMIT, encode_batches
from protocol.records.columns import ColumnBuffers, Wanted, append_set
from protocol.records.layout import CODEC_MASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from pipeline.delivery import Delivery, Writer
    from pipeline.progress import Progress
    from pipeline.session import Session

AS_SOURCE: Final = -1  # the codec of the batches the rows come from
_COMPARED: Final = 100  # records before the place to go on at
_RESTARTS: Final = 20
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

    `error` is a sentence where it stopped; what is there is right as far as it goes.
    """

    topic: str
    partition: int
    count: int
    found: int
    map: PartitionMap
    seconds: float
    cpu_seconds: float
    error: str | None = None


def replay(session: Session, tasks: Sequence[Task], progress: Progress) -> list[Outcome]:
    """Run the tasks, and say how far they are by asking the targets. Raises what Spark raises."""
    with _Watch(tasks, progress) as watch:
        outcomes: list[Outcome] = session.run(replay_partition, tasks, watch=watch.look)
        progress.update(sum(one.count for one in outcomes))
    return outcomes


def replay_partition(task: Task) -> Outcome:
    """Do one task. Trouble that may pass is raised, so that Spark tries again; the rest is in the outcome."""
    began_s, cpu_s = time.monotonic(), time.process_time()
    found, count, error, partition_map = 0, 0, None, _map_of(task, None)
    for restart in range(_RESTARTS):
        with Client(task.brokers, timeout_s=task.timeout_s) as client:
            written = deliveries.writer(client, task.topic, task.partition, task.delivery)
            try:
                found = _replay(client, task, written)
            except SequenceGap as gap:  # another task of this run writes too, or the log was cut
                if restart == _RESTARTS - 1:
                    error = str(gap)
                    break
                continue
            except (ClusterUnreachable, Fenced):
                raise  # for Spark to try again, unless it is the older of two tasks
            except (PipelineError, SourceError) as failure:
                error = str(failure)
            count, partition_map = written.done, _map_of(task, written)
            break
    return Outcome(
        task.topic,
        task.partition,
        count,
        found,
        partition_map,
        time.monotonic() - began_s,
        time.process_time() - cpu_s,
        error,
    )


def _map_of(task: Task, written: Writer | None) -> PartitionMap:
    runs = () if written is None else written.runs.taken()
    is_complete = written is not None and written.map_is_complete
    return PartitionMap(
        task.source_topic, task.source_partition, task.topic, task.partition, runs, is_complete
    )


def _replay(client: Client, task: Task, written: Writer) -> int:
    """Pass over what is there, and write the rest; returns how many records were there."""
    there = written.begin()
    tail = _Tail(with_time=not task.is_stamped)
    number = 0
    if not there and written.is_comparable:
        tail.is_checked = True
    for rows in task.source.read():
        first = min(rows.count, there - number) if number < there else 0
        if first:
            written.skip(rows.offset[:first], number)
            tail.add(rows.buffers, first)
            number += first
            if number == there and written.is_comparable:
                tail.compare(client, task, there)
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
    return there


def _codec(task: Task, rows: Rows) -> int:
    if task.compression != AS_SOURCE:
        return task.compression
    batches = getattr(rows, "batches", None)
    return 0 if batches is None or not len(batches) else int(batches[0, _ATTRIBUTES]) & CODEC_MASK


class _Tail:
    """What the last records before a place are: their times, and a CRC of key, value and headers."""

    def __init__(self, *, with_time: bool) -> None:
        self._with_time = with_time
        self._seen: deque[tuple[int, int]] = deque(maxlen=_COMPARED)
        self.is_checked = False

    def add(self, columns: ColumnBuffers, end: int) -> None:
        """Remember the last rows before `end`."""
        self._seen.extend(fingerprints(columns, max(0, end - _COMPARED), end))

    def compare(self, client: Client, task: Task, there: int) -> None:
        """Compare with what the target has before record `there`. Raises PipelineError."""
        end = task.delivery.start_offset + there
        start = end - len(self._seen)
        found = dict(_stored(client, task, start, end))
        for offset, expected in zip(range(start, end), self._seen, strict=True):
            stored = found.get(offset)
            if stored is None:  # retention was here
                continue
            if stored[1] != expected[1] or (self._with_time and stored[0] != expected[0]):
                raise PipelineError(
                    f"{task.topic}-{task.partition} has another record at offset {offset} than the run would"
                    f" have written there (time {stored[0]} there, {expected[0]} here): somebody else has"
                    " written to it, or the source has changed; nothing was written; begin a new run with a"
                    " topic of its own"
                )
        self.is_checked = True


def fingerprints(columns: ColumnBuffers, start: int, end: int) -> list[tuple[int, int]]:
    """The time of each row, and a CRC of its key, value and headers."""
    found = []
    for row in range(start, end):
        data, _, timestamp, _ = kernels.encode_rows(columns, row, row + 1, 1)
        found.append((timestamp, crc32c(data)))
    return found


def _stored(
    client: Client, task: Task, start: int, end: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """The fingerprints of what a target has from one offset to before another, as far as it has it."""
    offset = start
    while offset < end:
        try:
            data = client.fetch(task.topic, task.partition, offset).records
        except ClientError:
            return  # gone by retention: there is nothing to compare
        columns = ColumnBuffers()
        append_set(data, columns, Wanted(low_offset=offset, high_offset=end))
        if not columns.record_count:
            return
        offsets = memoryview(columns.offsets)[: 8 * columns.record_count].cast("q")
        yield from zip(
            offsets.tolist(),
            fingerprints(columns, 0, columns.record_count),
            strict=True,
        )
        offset = offsets[-1] + 1


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
