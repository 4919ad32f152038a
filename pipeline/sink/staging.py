"""Stages the rows of one task of Spark: an Arrow file, and where in it each partition's rows are.

A file is named at random, written, synced, and only then reported to the commit. Files of attempts
that failed are never reported; the commit removes them.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tidelog.client import Client, RequestError
from tidelog.client.calls.topics import describe
from tidelog.client.errors import raise_for_code
from tidelog.pipeline.archive.layout import buffers_of
from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.replay.staged_source import StagedRows
from tidelog.pipeline.sink import rows
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tidelog.pipeline.sink.sink_options import SinkOptions
    from tidelog.protocol.topic_partition import TopicPartition

INCOMING: Final = "incoming"
_MARK: Final = ".shared-"
_CREATED_WITHIN_S: Final = 10
_AGAIN_S: Final = 0.1
_PASSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file: for each topic and partition the numbers of its batches; and its rows."""

    path: str
    batches: dict[str, dict[str, list[int]]]
    row_count: int


class PartitionCounts:
    """How many partitions topics have, asked once for each; brokers may create one that is asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        """Returns the number of partitions. Raises UsageError if there is no such topic."""
        if topic not in self._known:
            try:
                self._known[topic] = self._client.partition_count(topic)
            except RequestError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._known[topic] = self._created(topic)
        return self._known[topic]

    def _created(self, topic: str) -> int:
        """Lets the brokers create a topic, where their settings do, and waits for its leaders."""
        until = time.monotonic() + _CREATED_WITHIN_S
        while time.monotonic() < until:
            (found,) = self._client.perform(describe([topic], may_create=True)).topics
            if not found.error_code:
                return len(found.partitions)
            if found.error_code not in _PASSING:
                raise_for_code(found.error_code, f"topic {topic}")
            time.sleep(_AGAIN_S)
        raise UsageError(
            f"the target has no topic {topic}, and the broker creates none (auto.create.topics.enable):"
            " create it first"
        )


def check_target(options: SinkOptions) -> None:
    """Raises UsageError if the topic of all rows does not exist, and no broker creates it."""
    if options.topic is not None:
        with Client(options.brokers) as client:
            PartitionCounts(client)(options.topic)


def is_marked(directory: Path) -> bool:
    """Returns whether a stream has used a staging directory before."""
    return any(directory.glob(f"{_MARK}*"))


def marked(directory: Path) -> str:
    """Makes the staging directory of streams; returns the name of a file in it. Raises OSError.

    A worker that does not see the file has another directory at this path. The file stays there,
    and all streams that use the directory know it by the same one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(directory.glob(f"{_MARK}*")):
        return path.name
    name = f"{_MARK}{uuid.uuid4().hex}"
    (directory / name).touch()
    return name


def entered(directory: Path, mark: str, query: str) -> Path:
    """Returns the folder of a streaming query in its staging directory, and makes it.

    Raises UsageError if the directory lacks the driver's mark, before a row is staged for nothing.
    """
    if not (directory / mark).exists():
        raise UsageError(
            f"{directory} on {socket.gethostname()} is not the staging directory of the driver: it must"
            " be one that all machines of the cluster share (option staging)"
        )
    place = directory / query
    place.mkdir(exist_ok=True)
    return place


def stage(
    options: SinkOptions, directory: Path, batches: Iterable[Any], now_ms: int
) -> StagedFile | None:
    """Stages rows below a directory; None: there are none.

    The directory exists. Raises PipelineError for a row that no record can be, and if the directory
    is gone; OSError and the client's errors.
    """
    path = directory / INCOMING / f"{uuid.uuid4().hex}.arrow"
    writer = None
    places: dict[TopicPartition, list[int]] = {}
    count = number = 0
    try:
        with Client(options.brokers) as client:
            counts = PartitionCounts(client)
            for batch in _larger(batches):
                staged = rows.staged(batch, now_ms)
                if writer is None:
                    writer = _Writer(_made(path))
                targets = rows.targets_of(batch, options.topic, counts)
                for key, chosen in sorted(targets.items()):
                    writer.write(staged.take(pa.array(chosen)))
                    places.setdefault(key, []).append(number)
                    number += 1
                count += batch.num_rows
        if writer is None:
            return None
        writer.finish()
    except BaseException:
        if writer is not None:
            writer.close()
            path.unlink(missing_ok=True)
        raise
    found: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), numbers in places.items():
        found.setdefault(topic, {})[str(partition)] = numbers
    return StagedFile(str(path), found, count)


def _made(path: Path) -> Path:
    """Returns the path of a new file after making its folder. Raises UsageError.

    The directory above is the driver's work. A task that comes late, when the driver has given up
    and removed the directory, leaves nothing behind.
    """
    try:
        path.parent.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise UsageError(
            f"the staging directory {path.parent.parent} is not there: it must be one that all machines of"
            " the cluster share; or the write was given up"
        ) from None
    return path


class _Writer:
    """Writes an Arrow file, and syncs it at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(self._file, rows.STAGED, options=lz4)

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        self._file.close()


def _larger(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the rows in larger batches, because each is split by its partitions."""
    held: list[Any] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _MOST_ROWS or size >= _MOST_BYTES:
            yield _joined(held)
            held, count, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


@dataclass(frozen=True, slots=True)
class ArrowSource:
    """The staged rows of one partition: files, and the numbers of their batches, in order."""

    files: tuple[tuple[str, tuple[int, ...]], ...]
    size_bytes: int = 0

    def read(self) -> Iterator[StagedRows]:
        """Yields the rows. Raises PipelineError if a file is gone."""
        done = 0
        for path, numbers in self.files:
            try:
                source = pa.memory_map(path)
            except FileNotFoundError as error:
                raise PipelineError(
                    f"{path}, which a task of Spark has written, is not here: staging has to be a"
                    " directory that the driver and all workers share"
                ) from error
            with source, pa.ipc.open_file(source) as file:
                for number in numbers:
                    batch = file.get_batch(number)
                    count = batch.num_rows
                    offsets = np.arange(done, done + count, dtype=np.int64)
                    yield StagedRows(count, buffers_of(batch), offsets)
                    done += count
