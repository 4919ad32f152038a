"""`spark.read.format("timelog")`: logs as a data source of Spark, in batch and streaming.

`tidelog.spark.register` registers the source with a session. The source goes to workers by value,
with the place where the driver found tidelog (`arrival`). So local mode needs no setup; on a
cluster tidelog must be installed in the Python of the workers (docs/pipeline/source.md). `splits`,
`reading` and `levels` decide and read everything; `timelog_options` parses the options, and this
module has the interfaces that Spark wants. A worker unpickles these classes before it can import
the rest of tidelog. So this module imports only PySpark and the standard library at the top, and
Spark carries only options and bytes between processes.

Options (in any case; the error for a wrong value says what was expected):

    path, paths            log directories of tidelog or Apache Kafka, or URIs, separated by commas
    brokers                host:port,host:port instead
    topics                 names separated by commas
    topicsPattern          a regular expression for whole names, instead of topics
    level                  record (default), time, batch, segment
    from, to               event times, ISO 8601 or ms: the first included, the second not
    upto                   high-watermark (default), or log-end (paths only)
    isolation              read_uncommitted (default, as Kafka), read_committed
    verifyCrc              check CRCs (default true; for levels batch and segment false)
    maxPartitionBytes      size of a split, 128m by default; small neighbours go into one task
    maxPartitionOffsets    the same for brokers, in offsets, 4000000 by default
    maxBatchBytes          approximate size of an Arrow batch, 16m by default
    trustTimeIndex         skip segments by .timeindex, which nothing proves (default false)
    offsets                {"topic": {"0": [start, end]}}: only these, as fixed before
    startingOffsets        streaming: earliest (default), latest
    maxOffsetsPerTrigger   streaming, Spark 4.2 and later
    failOnDataLoss         streaming: whether deleted offsets are an error (default true)
    pushFilters            push filters down; the default is the value that
                           spark.sql.python.filterPushdown.enabled had at `register`
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from pipeline.arrival import arrive, home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.source.splits import OffsetRange
    from pipeline.source.timelog_options import TimelogOptions
    from protocol.topic_partition import TopicPartition

    Offsets = dict[str, dict[str, int]]


def register(spark: Any) -> None:
    """Registers `timelog` with a Spark session."""
    from pyspark import cloudpickle

    pushes = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"
    source = type(
        "TimelogDataSource", (TimelogDataSource,), {"home": tuple(home()), "pushes": pushes}
    )
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(source)


def _parsed(home: tuple[str, ...], given: Mapping[str, str]) -> TimelogOptions:
    """Returns the parsed options. Raises OptionError and SourceError."""
    arrive(*home)
    from pipeline.source.timelog_options import TimelogOptions

    return TimelogOptions(given)


class TimelogDataSource(DataSource):  # type: ignore[misc]
    """Logs, as a data source."""

    home: tuple[str, ...] = ("pipeline", "", "")
    pushes = False

    def __init__(self, options: Mapping[str, str]) -> None:
        """Checks the options. Raises OptionError and SourceError."""
        super().__init__(options)
        self._carried = dict(options)
        self._settings()

    def _settings(self) -> TimelogOptions:
        return _parsed(self.home, self._carried)

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "timelog"

    def schema(self) -> Any:
        """Returns the schema of the level."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from pipeline.source.levels import SCHEMAS

        return from_arrow_schema(SCHEMAS[self._settings().level])

    def reader(self, schema: Any) -> DataSourceReader:
        """Returns the batch reader."""
        pushes = self._settings().pushes(default=self.pushes)
        return (PushingReader if pushes else Reader)(self.home, self._carried)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Returns the stream reader."""
        return StreamReader(self.home, self._carried)


class _Reading:
    """The common part of batch and streaming."""

    def __init__(self, home: tuple[str, ...], carried: dict[str, str]) -> None:
        self._home = home
        self._carried = carried
        self._narrowed: bytes | None = None

    def _settings(self) -> TimelogOptions:
        settings = _parsed(self._home, self._carried)
        if self._narrowed is not None:
            settings.selection = pickle.loads(self._narrowed)
        return settings

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the Arrow batches of a split."""
        settings = self._settings()
        from pipeline.source.levels import rows
        from pipeline.source.reading import Options

        if partition.value is None:  # Spark's placeholder if nothing was planned
            return iter(())
        options = Options.of(
            settings.selection,
            settings.depth,
            verify_crc=settings.verify_crc,
            batch_bytes=settings.batch_bytes,
        )
        splits = pickle.loads(partition.value)
        return (batch for split in splits for batch in rows(split, settings.level, options))

    def _plan(self, settings: TimelogOptions) -> list[InputPartition]:
        from pipeline.source import access, splits

        planned = access.plan(settings.selection, logs=settings.logs, brokers=settings.brokers)
        groups = splits.grouped(planned, settings.selection.split_bytes)
        return [InputPartition(pickle.dumps(group)) for group in groups]


class Reader(_Reading, DataSourceReader):  # type: ignore[misc]
    """Reads what exists now."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plans the splits, which fixes the offsets."""
        return self._plan(self._settings())


class PushingReader(Reader):
    """Reads less because of filters; Spark applies them again.

    It uses comparisons of `topic` and `partition` (=, in), and of `offset` and `timestamp_ms` if
    each row is a record.
    """

    def pushFilters(self, filters: Sequence[Any]) -> Iterator[Any]:
        """Reduces the plan by filters."""
        settings = self._settings()
        from pipeline.source.pushing import narrowed

        of_records = settings.level in ("record", "time")
        self._narrowed = pickle.dumps(narrowed(settings.selection, filters, of_records=of_records))
        return iter(filters)


class StreamReader(_Reading, DataSourceStreamReader):  # type: ignore[misc]
    """Reads new records; offsets in Spark's log are {"topic": {"0": next offset}}."""

    def initialOffset(self) -> Offsets:
        """Returns the start of a new query."""
        settings = self._settings()
        which = 1 if settings.starting == "latest" else 0
        return _nested({key: reach[which] for key, reach in _ranges(settings).items()})

    def latestOffset(self, start: Offsets | None = None, limit: Any = None) -> Offsets:
        """Returns the end of this micro-batch. Spark 4.1 passes no arguments and reads all."""
        ranges = _ranges(self._settings())
        ends = {key: end for key, (_, end) in ranges.items()}
        most = getattr(limit, "max_rows", None)
        if start is not None and most is not None:
            before = _flat(start)
            starts = {key: before.get(key, low) for key, (low, _) in ranges.items()}
            ends = _share(starts, ends, most)
        for key, offset in _flat(start or {}).items():  # a log may be gone for a while
            ends[key] = max(offset, ends.get(key, offset))
        return _nested(ends)

    def getDefaultReadLimit(self) -> Any:
        """Returns the maximum size of a micro-batch."""
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxRows,
        )

        most = self._settings().most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Plans a micro-batch."""
        from dataclasses import replace

        settings = self._settings()
        begin, finish = _flat(start), _flat(end)
        reach = {key: (begin.get(key, 0), last) for key, last in finish.items()}
        is_new = {key for key in finish if key not in begin}
        reach = {key: span for key, span in reach.items() if span[0] < span[1]}
        if not reach:
            return []
        if is_new:
            lows = _ranges(settings)
            reach = {
                key: (lows[key][0] if key in is_new and key in lows else low, high)
                for key, (low, high) in reach.items()
            }
        settings.selection = replace(
            settings.selection, offsets=reach, allow_gone=not settings.fail_on_data_loss
        )
        return self._plan(settings)

    def commit(self, end: Offsets) -> None:
        """Does nothing: Spark's checkpoint has the position of a stream."""

    def stop(self) -> None:
        """Does nothing: there are no resources to release."""


def _ranges(settings: TimelogOptions) -> dict[TopicPartition, OffsetRange]:
    from pipeline.source import access

    return access.ranges(settings.selection, logs=settings.logs, brokers=settings.brokers)


def _nested(offsets: Mapping[TopicPartition, int]) -> Offsets:
    nested: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _flat(offsets: Offsets) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _share(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Distributes `most` offsets over the partitions by their size; at least one advances."""
    left = {key: end - starts[key] for key, end in ends.items() if end > starts[key]}
    total = sum(left.values())
    if total <= most:
        return dict(ends)
    shared, given = dict(starts), 0
    for key, count in left.items():
        part = count * most // total
        shared[key] += part
        given += part
    for key in sorted(left, key=left.__getitem__, reverse=True):
        if given >= most:
            break
        if shared[key] < ends[key]:
            shared[key] += 1
            given += 1
    return shared
