"""Which files of an archive a query reads, and their rows in batches for Spark.

The manifests decide, when the query is planned: a file that `compact` has replaced is never among them,
whether it was deleted or not, and neither is a file of a run that did not end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.archive import layout, reading
from tidelog.pipeline.archive.manifests import Archive
from tidelog.pipeline.archive.reading import Bounds
from tidelog.pipeline.archive.store import FileStore
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.options import topics_of
from tidelog.pipeline.times import parse_time
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.pipeline.archive.manifests import File

SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), *layout.SCHEMA, pa.field("event_date", pa.string())]
)
_TASK_BYTES: Final = 32 << 20
_OPTIONS: Final = ("from", "path", "pushFilters", "to", "topics")


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of an archive; None: no limit."""

    store: FileStore
    topics: frozenset[str] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    partitions: frozenset[int] | None = None
    dates: frozenset[str] | None = None
    pushes: bool = False

    def wants(self, file: File) -> bool:
        """Returns whether a file may have a row of the answer."""
        return (
            (self.topics is None or file.topic in self.topics)
            and (self.partitions is None or file.partition in self.partitions)
            and (self.dates is None or file.event_date in self.dates)
            and self.bounds.wants(file)
        )


def query_of(given: Mapping[str, str], now_ms: int) -> Query:
    """Parses the options of the source. Raises PipelineError for one that cannot be meant.

    Times relative to now (`-2h`) count from `now_ms`.
    """
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - {name.lower() for name in _OPTIONS})
    if unknown:
        raise PipelineError(f"timelog-archive has no option {unknown[0]}: {', '.join(_OPTIONS)}")
    if "path" not in options:
        raise PipelineError("timelog-archive needs a path: load(DIR), or a URI")
    names, pattern = topics_of(options.get("topics"))
    if pattern is not None:
        raise PipelineError(f"topics: '{pattern}' is no list of names: write a,b")
    pushes = options.get("pushfilters", "false").lower()
    if pushes not in ("true", "false"):
        raise PipelineError(f"pushFilters is true or false, not '{pushes}'")
    try:
        low, high = (
            None if options.get(name) is None else parse_time(options[name], now_ms)
            for name in ("from", "to")
        )
    except ValueError as error:
        raise PipelineError(str(error)) from error
    return Query(
        FileStore(options["path"]),
        topics=frozenset(names) or None,
        bounds=Bounds(low_time=low, high_time=high),
        pushes=pushes == "true",
    )


def planned(query: Query) -> list[tuple[File, ...]]:
    """Returns the files to read, some for each task. Raises PipelineError and OSError."""
    found: list[tuple[File, ...]] = []
    group: list[File] = []
    size = 0
    for one in filter(query.wants, Archive.sound(query.store).files):
        group.append(one)
        size += one.column_bytes
        if size >= _TASK_BYTES:
            found.append(tuple(group))
            group, size = [], 0
    return [*found, tuple(group)] if group else found


def rows(query: Query, files: tuple[File, ...]) -> Iterator[Any]:
    """Yields the rows of these files as record batches. Raises PipelineError and OSError."""
    for one in files:
        try:
            yield from _rows_of(query, one)
        except FileNotFoundError as error:
            raise PipelineError(
                f"{query.store.full(one.path)} is gone: the archive was compacted after this query was"
                " planned, so read it again (or run `archive verify`)"
            ) from error
        except pa.ArrowException as error:
            raise PipelineError(f"{query.store.full(one.path)} cannot be read: {error}") from error


def _rows_of(query: Query, file: File) -> Iterator[Any]:
    with (
        query.store.open(file.path) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as parquet,
    ):
        groups = reading.groups_of(parquet.metadata, file.partition)
        count = sum(parquet.metadata.row_group(number).num_rows for number in groups)
        if count != file.records:
            raise PipelineError(
                f"{query.store.full(file.path)} has {some(count, 'record')} of partition {file.partition},"
                f" and its manifest says {file.records}"
            )
        for number in groups:
            table = parquet.read_row_group(number, columns=layout.SCHEMA.names)
            table = query.bounds.among(table)
            topic = pa.repeat(pa.scalar(file.topic), table.num_rows)
            date = pa.repeat(pa.scalar(file.event_date, pa.string()), table.num_rows)
            columns = [topic, *table.columns, date]
            yield from pa.Table.from_arrays(columns, schema=SCHEMA).to_batches()
