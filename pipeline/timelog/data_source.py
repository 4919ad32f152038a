"""`spark.read.format("timelog")`: logs as a data source and sink of Spark, in batch and streaming.

`tidelog.spark.register` registers the source with a session. The source goes to workers by value,
with the place where the driver found tidelog (`arrival`). So local mode needs no setup; on a
cluster tidelog must be installed in the Python of the workers (docs/pipeline/source.md). `splits`,
`reading` and `levels` decide and read everything; `options` parses the options, and this
module has the interfaces that Spark wants. A worker unpickles these classes before it can import
the rest of tidelog. So this module imports only PySpark and the standard library at the top, and
Spark carries only options and bytes between processes.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from tidelog.pipeline.arrival import arrive_whole, home
from tidelog.pipeline.timelog import short_errors
from tidelog.pipeline.timelog.data_sink import batch_writer, stream_writer

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1
    SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog.pipeline.source.splits import Selection
    from tidelog.pipeline.timelog.options import TimelogOptions
    from tidelog.pipeline.timelog.stream_offsets import Found
    from tidelog.pipeline.timelog.triggers import Triggers
    from tidelog.protocol.topic_partition import TopicPartition

    Offsets = dict[str, dict[str, int | str]]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_CHECKPOINT = "checkpointlocation"
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


def register(spark: Any) -> None:
    """Registers `timelog` with a Spark session, and lets `pushFilters` be used in it.

    From then on PySpark's `save` appends to `timelog` without a mode. A value that somebody has given
    `spark.sql.python.filterPushdown.enabled` stays as it is.
    """
    from pyspark import cloudpickle
    from pyspark.sql.readwriter import DataFrameWriter

    from tidelog.pipeline.timelog import data_sink
    from tidelog.pipeline.timelog.saving import append_by_default

    if _PUSHDOWN not in dict(spark.conf.getAll):
        spark.conf.set(_PUSHDOWN, "true")
    source = type(
        "TimelogDataSource",
        (TimelogDataSource,),
        {"checkpoints": spark.conf.get(_CHECKPOINTS, None)},
    )
    for module in (sys.modules[__name__], data_sink, short_errors):
        cloudpickle.register_pickle_by_value(module)
    spark.dataSource.register(source)
    append_by_default(DataFrameWriter, TimelogDataSource.name())


def _parsed(
    home: tuple[str, ...], given: Mapping[str, str], now_ms: int, *, is_stream: bool = False
) -> TimelogOptions:
    """Returns the parsed options. Raises OptionError, SourceError, and ImportError with a sentence."""
    arrive_whole(*home)
    from tidelog.pipeline.timelog.options import TimelogOptions

    return TimelogOptions(given, now_ms, is_stream=is_stream)


class TimelogDataSource(DataSource):  # type: ignore[misc]
    """Logs, as a data source.

    Spark creates the source of a table in its catalog from a schema, without the options. So the
    schema of such a table carries them, in the metadata of its first column.
    """

    home: tuple[str, ...] = tuple(home())
    checkpoints: str | None = None  # of streams without the option, as the session says

    def __init__(self, options: Mapping[str, str]) -> None:
        """Keeps the options. Whether they are those of a read or a write is known later."""
        super().__init__(options)
        self._carried = dict(options)
        self._now_ms = time.time_ns() // 1_000_000  # what times relative to now count from

    def _settings(self) -> TimelogOptions:
        return _parsed(self.home, self._carried, self._now_ms)

    def _take_from(self, schema: Any) -> tuple[str, ...]:
        """Takes the options of a table from its schema; returns the wanted columns. Raises OptionError."""
        if not self._carried:
            arrive_whole(*self.home)
            from tidelog.pipeline.timelog.names import carried

            self._carried = carried(schema.fields[0].metadata if schema.fields else {})
        settings = self._settings()
        from tidelog.pipeline.timelog.columns import checked

        return checked(schema.names, settings)

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "timelog"

    def schema(self) -> Any:
        """Returns the schema of the level. Raises OptionError and SourceError."""
        from pyspark.sql.pandas.types import from_arrow_schema

        settings = self._settings()
        from tidelog.pipeline.timelog.columns import schema_of
        from tidelog.pipeline.timelog.names import METADATA, is_of_table, named

        found = from_arrow_schema(schema_of(settings))
        if is_of_table(self._carried):
            found.fields[0].metadata = {METADATA: json.dumps(named(self._carried)[0])}
        return found

    def reader(self, schema: Any) -> DataSourceReader:
        """Returns the batch reader."""
        names = self._take_from(schema)
        kind = PushingReader if self._settings().pushes else Reader
        return kind(self.home, self._carried, self._now_ms, names)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Returns the stream reader. Raises OptionError for an option of batches."""
        names = self._take_from(schema)
        settings = self._settings()
        settings.check_for_stream()
        settings.warn_of_unused()
        return StreamReader(self.home, self._carried, self._now_ms, names)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Returns the writer of a batch. Raises OptionError and UsageError before a row is staged."""
        return batch_writer(self.home, self._carried, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Returns the writer of a stream. Raises as `writer`, and OSError."""
        given = self._carried
        if self.checkpoints and _CHECKPOINT not in {name.lower() for name in given}:
            given = {**given, _CHECKPOINT: self.checkpoints}
        return stream_writer(self.home, given, schema, overwrite=overwrite)


class _Reading:
    """The common part of batch and streaming."""

    is_stream = False

    def __init__(
        self, home: tuple[str, ...], carried: dict[str, str], now_ms: int, names: tuple[str, ...]
    ) -> None:
        self._home = home
        self._carried = carried
        self._now_ms = now_ms
        self._names = names
        self._has_answered = False
        self._narrowed: bytes | None = None

    def _settings(self) -> TimelogOptions:
        settings = _parsed(self._home, self._carried, self._now_ms, is_stream=self.is_stream)
        settings.has_answered = self._has_answered
        if self._narrowed is not None:
            settings.selection = pickle.loads(self._narrowed)
        return settings

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the Arrow batches of a group of splits."""
        settings = self._settings()
        from tidelog.pipeline.timelog.columns import batches_of

        if partition.value is None:  # Spark's placeholder if nothing was planned
            return iter(())
        planned_ms, group = pickle.loads(partition.value)
        return batches_of(settings, group, self._names, planned_ms)

    def _plan(self, settings: TimelogOptions, selection: Selection) -> list[InputPartition]:
        from tidelog.pipeline.timelog.columns import grouped

        groups, now_ms = grouped(settings, selection), time.time_ns() // 1_000_000
        return [InputPartition(pickle.dumps((now_ms, group))) for group in groups]


class Reader(_Reading, DataSourceReader):  # type: ignore[misc]
    """Reads what exists now."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plans the splits, which fixes the offsets."""
        settings = self._settings()
        settings.warn_of_unused()
        return self._plan(settings, settings.planned())


class PushingReader(Reader):
    """Reads less because of filters on `topic`, `partition`, and on `offset` and times of records."""

    def pushFilters(self, filters: Sequence[Any]) -> Iterator[Any]:
        """Reduces the plan by filters; returns those that Spark has to apply again."""
        settings = self._settings()
        from tidelog.pipeline.timelog.pushing import narrowed, not_exact

        of_records = settings.level in ("record", "time")
        self._narrowed = pickle.dumps(narrowed(settings.selection, filters, of_records=of_records))
        return iter(not_exact(filters, of_records=of_records, shows_all=not settings.hides))


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads new records; `stream_offsets` has the form of the offsets in Spark's log."""

    is_stream = True
    _last: dict[TopicPartition, int] | None = None
    _found: Found | None = None  # when `latestOffset` was asked last
    _told: Offsets | None = None  # what it returned
    _triggers: Triggers | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of the query: what is there now. Spark 4.2 and later ask for it."""
        self._last = {key: end for key, (_, end) in self._settings().ranges().items()}

    def initialOffset(self) -> Offsets:
        """Returns the start of a new query."""
        settings = self._settings()
        from tidelog.pipeline.timelog.stream_offsets import nested

        settings.note_default_start()
        found = settings.found()
        return nested(settings.first_offsets(found.ranges), found.ids)

    def latestOffset(self, start: Offsets | None = None, limit: Any = None) -> Offsets:
        """Returns the end of this micro-batch. Spark 4.1 passes no arguments and reads all.

        Raises SourceError if records are lost, unless failOnDataLoss is false.
        """
        settings = self._settings()
        from tidelog.pipeline.timelog.stream_offsets import flat, nested, resumed, share

        before = flat(start or self._told or {})
        found = self._found = settings.found_after(before)
        self._has_answered = True  # so brokers exist, and may be restarting from now on
        starts, losses = resumed(before, found)
        if settings.fail_on_data_loss:
            settings.report(losses)  # else `partitions` does
        ends = {key: end for key, (_, end) in found.ranges.items()}
        if self._last is not None:
            ends = {
                key: min(end, self._last[key]) for key, end in ends.items() if key in self._last
            }
        begins = {key: starts.get(key, found.ranges[key][0]) for key in ends}
        if not self._is_due(settings, sum(ends.values()) - sum(begins.values())):
            self._told = start or self._told or {}
            return self._told
        most = getattr(limit, "max_rows", None)
        if start is not None and most is not None:
            ends = share(begins, ends, most)
        for key, offset in starts.items():  # a log may be gone for a while
            ends[key] = max(offset, ends.get(key, offset))
        self._told = nested(ends, {**before.ids, **found.ids})
        return self._told

    def _is_due(self, settings: TimelogOptions, offsets: int) -> bool:
        """Returns whether so many new offsets are a micro-batch; at the end of a query any are."""
        from tidelog.pipeline.timelog.triggers import Triggers

        if settings.least_offsets is None or self._last is not None:
            return True
        self._triggers = self._triggers or Triggers()
        delay_s = settings.delay_ms / 1000
        return self._triggers.is_due(offsets, settings.least_offsets, delay_s, time.monotonic())

    def reportLatestOffset(self) -> Offsets | None:
        """Returns the end of the logs when `latestOffset` was asked last. Spark 4.2 and later ask for it."""
        return None if self._found is None else self._found.latest()

    def getDefaultReadLimit(self) -> Any:
        """Returns the maximum size of a micro-batch."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        most = self._settings().most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Plans a micro-batch. Raises as `latestOffset`."""
        from dataclasses import replace

        settings = self._settings()
        from tidelog.pipeline.timelog.stream_offsets import flat, to_read

        before, after = flat(start), flat(end)
        found = self._found or settings.found_after(before)  # none: planned before a restart
        reach, losses = to_read(before, after, found)
        settings.report(losses)
        if not reach:
            return []
        selection = replace(
            settings.selection,
            offsets=reach,
            allow_gone=not settings.fail_on_data_loss,
            assigned=None,
        )
        return self._plan(settings, selection)

    def commit(self, end: Offsets) -> None:
        """Does nothing: Spark's checkpoint has the position of a stream."""

    def stop(self) -> None:
        """Does nothing: there are no resources to release."""


short_errors.shorten(TimelogDataSource, _Reading, Reader, PushingReader, StreamReader)
