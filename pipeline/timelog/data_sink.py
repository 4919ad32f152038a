"""`df.write.format("timelog")` and `df.writeStream`: the interfaces that Spark wants of a sink.

`sink/` decides and writes everything. Like `data_source` this module goes to workers by value, so it
imports only PySpark and the standard library at the top.
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.pipeline.arrival import arrive_whole
from tidelog.pipeline.timelog import short_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog.client import Brokers
    from tidelog.pipeline.sink.sink_options import SinkOptions

_QUERY = "sql.streaming.queryId"  # the name of Spark's local property


def batch_writer(
    home: tuple[str, ...], given: dict[str, str], schema: Any, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Returns the writer of a batch, whose tasks find a directory.

    Raises OptionError and UsageError, and the client's errors.
    """
    options, unwritten = _checked(home, given, schema, overwrite=overwrite)
    from tidelog.pipeline.sink.staging import check_target

    check_target(options)
    options.warn(unwritten)
    directory = options.directory_of_batch()
    directory.mkdir(parents=True, exist_ok=True)
    return BatchWriter(home, given, str(directory), options.brokers)


def stream_writer(
    home: tuple[str, ...], given: dict[str, str], schema: Any, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Returns the writer of a micro-batch, with the directory of its stream.

    Raises as `batch_writer`, and OSError.
    """
    options, unwritten = _checked(home, given, schema, overwrite=overwrite)
    from tidelog.pipeline.sink.staging import check_target, is_marked, marked

    if not is_marked(options.staging()):  # later micro-batches say nothing again
        check_target(options)
        options.warn(unwritten)
    writer = StreamWriter(home, given, str(options.staging()), options.brokers)
    writer.mark = marked(options.staging())
    return writer


def _parsed(home: tuple[str, ...], given: Mapping[str, str]) -> SinkOptions:
    """Returns the options of a write. Raises OptionError."""
    arrive_whole(*home)
    from tidelog.pipeline.sink.sink_options import SinkOptions

    return SinkOptions(given)


def _checked(
    home: tuple[str, ...], given: Mapping[str, str], schema: Any, *, overwrite: bool
) -> tuple[SinkOptions, list[str]]:
    """Returns the options of a write, and the columns that are not written. Raises OptionError."""
    options = _parsed(home, given)
    from tidelog.pipeline.sink.sink_options import check

    return options, check(schema, options, overwrite=overwrite)


class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the commit: its staged file, pickled, and the id of the streaming query."""

    def __init__(self, file: bytes, query: str | None) -> None:
        self.file = file
        self.query = query


class _Writing:
    """The common part of batch and streaming: tasks stage rows, and the commit writes them.

    `brokers` carry what the driver has read of their security: a worker may not have the files. By
    `mark` the tasks of a stream know the driver's directory.
    """

    mark = ""

    def __init__(
        self, home: tuple[str, ...], carried: dict[str, str], directory: str, brokers: Brokers
    ) -> None:
        self._home = home
        self._carried = carried
        self._directory = directory
        self._brokers = pickle.dumps(brokers)

    def _options(self) -> SinkOptions:
        options = _parsed(self._home, self._carried)
        options.brokers = pickle.loads(self._brokers)
        return options

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stages the rows of a task."""
        options = self._options()
        from tidelog.pipeline.sink.staging import entered, stage

        query = TaskContext.get().getLocalProperty(_QUERY)
        place, now_ms = self._of(query), time.time_ns() // 1_000_000
        if query:
            entered(Path(self._directory), self.mark, query)
            options.brokers.has_answered = True  # they may be restarting: the query takes long
        return Staged(pickle.dumps(stage(options, place, iterator, now_ms)), query)

    def _of(self, query: str | None) -> Path:
        return Path(self._directory, query or "")

    def _commit(self, messages: Sequence[Staged | None], number: int) -> None:
        options = self._options()
        from tidelog.pipeline.sink.committing import by_query, commit

        for query, files in by_query(messages).items():
            commit(options, self._of(query), number, files)

    def _abort(self, messages: Sequence[Staged | None]) -> None:
        arrive_whole(*self._home)
        from tidelog.pipeline.sink.committing import by_query, discard

        for query, files in by_query(messages).items():
            discard(self._of(query), files)


class BatchWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a DataFrame."""

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """Writes what all tasks have staged."""
        self._commit(messages, 0)
        _parsed(self._home, self._carried).forget(Path(self._directory))

    def abort(self, messages: Sequence[Staged | None]) -> None:
        """Removes what is staged, unless a commit has begun to write it and can be continued."""
        self._abort(messages)
        _parsed(self._home, self._carried).forget(Path(self._directory))


class StreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes micro-batches; each has the number that Spark's checkpoint gives it."""

    def commit(self, messages: Sequence[Staged | None], batch_id: int) -> None:
        """Writes what all tasks have staged; a repeated commit writes the rest, or nothing."""
        self._commit(messages, batch_id)

    def abort(self, messages: Sequence[Staged | None], batch_id: int) -> None:
        """Removes what is staged, unless a commit has begun to write it."""
        self._abort(messages)


short_errors.shorten(_Writing, BatchWriter, StreamWriter)
