"""`spark.read.format("timelog-archive")`: an archive as a data source of Spark, by its manifests.

`archive.selecting` decides and reads everything; this module has the interfaces that Spark wants. It
goes to workers by value, so it imports only PySpark and the standard library at the top (see
`data_source`).
"""

from __future__ import annotations

import pickle
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.pipeline.arrival import arrive, home
from tidelog.pipeline.timelog import short_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def register(spark: Any) -> None:
    """Registers `timelog-archive` with a Spark session."""
    from pyspark import cloudpickle

    for module in (sys.modules[__name__], short_errors):
        cloudpickle.register_pickle_by_value(module)
    spark.dataSource.register(ArchiveDataSource)


class ArchiveDataSource(DataSource):  # type: ignore[misc]
    """An archive, as a data source."""

    home: tuple[str, ...] = tuple(home())

    def __init__(self, options: Mapping[str, str]) -> None:
        """Checks the options. Raises PipelineError."""
        super().__init__(options)
        self._carried = dict(options)
        self._now_ms = time.time_ns() // 1_000_000  # what times relative to now count from

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "timelog-archive"

    def schema(self) -> Any:
        """Returns the schema: the archive's columns between `topic` and `event_date`."""
        from pyspark.sql.pandas.types import from_arrow_schema

        arrive(*self.home)
        from tidelog.pipeline.archive.selecting import SCHEMA

        return from_arrow_schema(SCHEMA)

    def reader(self, schema: Any) -> DataSourceReader:
        """Returns the reader. Raises PipelineError for a wrong option."""
        arrive(*self.home)
        from tidelog.pipeline.archive.selecting import query_of

        query = query_of(self._carried, self._now_ms)
        kind = PushingArchiveReader if query.pushes else ArchiveReader
        return kind(self.home, pickle.dumps(query))


class ArchiveReader(DataSourceReader):  # type: ignore[misc]
    """Reads the files that the manifests have when the query is planned."""

    def __init__(self, home: tuple[str, ...], query: bytes) -> None:
        self._home = home
        self._query = query

    def partitions(self) -> Sequence[InputPartition]:
        """Plans the files, some for each task. Raises PipelineError and OSError."""
        arrive(*self._home)
        from tidelog.pipeline.archive.selecting import planned

        groups = planned(pickle.loads(self._query))
        return [InputPartition(pickle.dumps(group)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the Arrow batches of some files."""
        arrive(*self._home)
        from tidelog.pipeline.archive.selecting import rows

        if partition.value is None:  # Spark's placeholder if nothing was planned
            return iter(())
        return rows(pickle.loads(self._query), pickle.loads(partition.value))


class PushingArchiveReader(ArchiveReader):
    """Reads fewer files because of filters; Spark applies them again."""

    def pushFilters(self, filters: Sequence[Any]) -> Iterator[Any]:
        """Reduces the files by filters on topic, partition, event_date, offset and times."""
        arrive(*self._home)
        from tidelog.pipeline.timelog.pushing import narrowed_query

        self._query = pickle.dumps(narrowed_query(pickle.loads(self._query), filters))
        return iter(filters)


short_errors.shorten(ArchiveDataSource, ArchiveReader, PushingArchiveReader)
