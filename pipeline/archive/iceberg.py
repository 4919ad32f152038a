"""An archive as an Apache Iceberg table: `IcebergTable` is the place, `write` the task that fills it.

What reads it back is in iceberg_files.py.

The table has the columns of the Parquet archive and `topic`, and is partitioned by the day of
`timestamp`, so a late record goes to an old partition. Records without a time, or with one before the
year 1 or after 9999, have no `timestamp` and are in the partition null; `timestamp_ms` is exact
everywhere.

Each run is one snapshot. In the same commit the property `tidelog.archive` says how far each partition
is archived, so a run that is repeated adds nothing, also when its snapshot has expired. The commit
names the snapshot that it follows: of two runs at once one fails. Names of data files are unique. What
a killed run leaves belongs to no snapshot, and Iceberg's own maintenance (remove_orphan_files) deletes
it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.archive import iceberg_files, layout, manifests, writing
from tidelog.pipeline.archive.iceberg_files import DataFile, TableFiles
from tidelog.pipeline.archive.manifests import Archive, File, Manifest, Range
from tidelog.pipeline.archive.writing import Chunk, Written
from tidelog.pipeline.errors import PipelineError, SetupError, UsageError
from tidelog.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

STATE: Final = "tidelog.archive"
RUN: Final = "tidelog.run"
RANGES: Final = "tidelog.ranges"
GAPS: Final = "tidelog.gaps"
INSTALL: Final = "pip install '.[iceberg]' in a clone of tidelog"
_RETRIES: Final = "commit.retry.num-retries"


@dataclass(frozen=True, slots=True)
class DataFileTarget:
    """Where tasks write data files. It can be pickled."""

    properties: tuple[tuple[str, str], ...]
    location: str
    schema: Any  # of Arrow, with the ids of the table's fields

    def write(self, directory: str, topic: str, partition: int, table: Any) -> tuple[str, int]:
        """Writes one file of one partition; returns its location and size in bytes. Raises OSError."""
        from pyiceberg.io import load_file_io

        columns = {"topic": pa.repeat(pa.scalar(topic), table.num_rows)}
        shaped = [
            (columns.get(field.name) or table.column(field.name)).cast(field.type)
            for field in self.schema
        ]
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_arrays(shaped, schema=self.schema),
            sink,
            row_group_size=writing.group_rows(max(1, table.nbytes // table.num_rows)),
            compression="zstd",
            use_dictionary=["topic", "partition", "timestampType"],
            write_page_checksum=True,
        )
        data = sink.getvalue().to_pybytes()
        offsets = table.column("offset")
        name = iceberg_files.name_of(
            topic,
            partition,
            offsets[0].as_py(),
            offsets[-1].as_py(),
            uuid.uuid4().hex,
            crc32c(data),
        )
        path = f"{self.location}/data/{directory}/{name}"
        with load_file_io(dict(self.properties), path).new_output(path).create() as file:
            file.write(data)
        return path, len(data)


def write(chunk: Chunk) -> Written:
    """Does one task. Raises SourceError, ClientError and OSError."""
    target = chunk.store
    assert isinstance(target, DataFileTarget)
    files = []
    for table, _ in writing.sliced(writing.tables(chunk), chunk.file_bytes):
        for date, part in _by_day(table):
            offsets = part.column("offset")
            directory = f"event_date={date or 'null'}"
            path, size = target.write(directory, chunk.topic, chunk.partition, part)
            times = pc.min_max(part.column("timestamp_ms")).as_py()
            files.append(
                File(
                    path=path,
                    topic=chunk.topic,
                    partition=chunk.partition,
                    event_date=date,
                    first_offset=offsets[0].as_py(),
                    last_offset=offsets[-1].as_py(),
                    records=len(offsets),
                    size_bytes=size,
                    column_bytes=part.nbytes,
                    crc32c=0,  # the name has it: Iceberg's metadata has no place for it
                    min_timestamp_ms=times["min"] if date else None,
                    max_timestamp_ms=times["max"] if date else None,
                )
            )
    records = sum(one.records for one in files)
    span = Range(chunk.topic, chunk.partition, chunk.start_offset, chunk.end_offset, records)
    return Written(span, tuple(files))


def _by_day(table: Any) -> Iterator[tuple[str | None, Any]]:
    """Splits records by the day of `timestamp`; None where that is null."""
    has_day = iceberg_files.dated(table.column("timestamp_ms"))
    at = table.schema.get_field_index("timestamp")
    shown = pc.if_else(has_day, table.column(at), None)
    table = table.set_column(at, table.schema.field(at), shown)
    for date, part in layout.by_date(table):
        has_time = pc.is_valid(part.column("timestamp"))
        for named, rows in (
            (date, part.filter(has_time)),
            (None, part.filter(pc.invert(has_time))),
        ):
            if rows.num_rows:
                yield named, rows


class IcebergTable:
    """An Iceberg table as the place of an archive; it is created at the first run."""

    write = staticmethod(write)

    def __init__(self, name: str, catalog: Mapping[str, str]) -> None:
        """Finds the catalog. Raises SetupError without pyiceberg, PipelineError for a bad catalog."""
        self.name = name
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise SetupError(f"--table needs {error.name}: {INSTALL}") from None
        properties = dict(catalog)
        try:
            self._catalog = load_catalog(properties.pop("name", "default"), **properties)
        except Exception as error:
            raise PipelineError(f"the catalog of {name} cannot be opened: {error}") from error
        self._table: Any = None
        self._state: str | None = None  # as it was read

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks nothing: the commit notices another run."""
        yield

    def read(self) -> Archive:
        """Returns what is archived, without files. Raises PipelineError for a table that is not ours."""
        self._table = self._found()
        self._state = None if self._table is None else self._table.properties.get(STATE)
        if self._state is None:
            return Archive([])
        return Archive([Manifest.decoded(self._state.encode(), f"{STATE} of {self.name}")])

    def is_done(self, run: str) -> bool:
        """Returns whether a snapshot of this run is there."""
        self.read()
        if self._table is None:
            return False
        found = (one.summary for one in self._table.metadata.snapshots)
        return any(one is not None and one.get(RUN) == run for one in found)

    def listed(self, *, is_whole: bool) -> tuple[Archive, TableFiles, list[DataFile]]:
        """Returns what is archived, without files, and the files of the current snapshot to examine.

        `is_whole` asks for every byte of them to be checked. Raises UsageError for a table without an
        archive, PipelineError for one that cannot be read.
        """
        archive = self.read()
        if not archive.manifests:
            raise UsageError(f"table {self.name} is no archive: nothing was archived to it")
        files = TableFiles(f"table {self.name}", self._properties)
        try:
            items = [
                DataFile(
                    files,
                    one.file.file_path,
                    one.file.file_size_in_bytes,
                    one.file.record_count,
                    one.file.partition[0],
                    len(one.delete_files),
                    is_whole,
                )
                for one in self._table.scan().plan_files()
            ]
        except Exception as error:  # whatever pyiceberg makes of damaged metadata
            raise PipelineError(f"table {self.name} cannot be read: {error}") from error
        return archive, files, items

    @property
    def _properties(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((key, str(value)) for key, value in self._table.io.properties.items()))

    def target(self) -> DataFileTarget:
        """Returns where tasks write; creates the table if there is none. Raises PipelineError."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        if self._table is None:
            self._table = self._created()
        if self._table.properties.get(_RETRIES) != "0":  # a retry would add a run to another's
            with self._table.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})
        names = [field.name for field in _schema().fields]
        return DataFileTarget(
            self._properties,
            self._table.location().rstrip("/"),
            schema_to_pyarrow(self._table.schema().select(*names)),
        )

    def commit(self, made: Manifest, before: Archive, _recheck: Callable[[Archive], None]) -> None:
        """Adds the files of a run in one snapshot. Raises PipelineError if another came first."""
        from pyiceberg.exceptions import CommitFailedException

        if self._table.properties.get(STATE) != self._state:  # `target` has changed the table since
            raise self._overtaken("another run came first")
        state = _joined([*before.manifests, made])
        facts = {
            RUN: made.run,
            RANGES: json.dumps([one._asdict() for one in made.ranges]),
            GAPS: json.dumps([one._asdict() for one in made.gaps]),
        }
        try:
            with self._table.transaction() as transaction:
                transaction.set_properties({STATE: state.encoded().decode()})
                with transaction.update_snapshot(snapshot_properties=facts).fast_append() as append:
                    for one in made.files:
                        append.append_data_file(self._data_file(one))
        except CommitFailedException as error:
            raise self._overtaken(str(error)) from error

    def _overtaken(self, why: str) -> PipelineError:
        return PipelineError(
            f"nothing was archived: table {self.name} has changed meanwhile; repeat the run ({why})"
        )

    def _found(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            found = self._catalog.load_table(self.name)
        except NoSuchTableError:
            return None
        missing = {one.name for one in _schema().fields} - {
            one.name for one in found.schema().fields
        }
        if missing:
            raise PipelineError(
                f"table {self.name} has no column {', '.join(sorted(missing))}: choose another --table"
            )
        source = found.schema().find_field("timestamp").field_id
        if [(one.source_id, str(one.transform)) for one in found.spec().fields] != [
            (source, "day")
        ]:
            raise PipelineError(f"table {self.name} is not partitioned by day(timestamp) alone")
        return found

    def _created(self) -> Any:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import DayTransform

        schema = _schema()
        source = schema.find_field("timestamp").field_id
        self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        return self._catalog.create_table(
            self.name,
            schema,
            partition_spec=PartitionSpec(
                PartitionField(source, 1000, DayTransform(), "event_date")
            ),
            properties={_RETRIES: "0"},
        )

    def _data_file(self, file: File) -> Any:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        ids = {field.name: field.field_id for field in self._table.schema().fields}
        bounds: dict[str, tuple[bytes, bytes]] = {
            "topic": (file.topic.encode(), file.topic.encode()),
            "partition": (struct.pack("<i", file.partition),) * 2,
            "offset": (struct.pack("<q", file.first_offset), struct.pack("<q", file.last_offset)),
        }
        day = None
        if file.min_timestamp_ms is not None and file.max_timestamp_ms is not None:
            day = file.min_timestamp_ms // iceberg_files.DAY_MS
            span = file.min_timestamp_ms, file.max_timestamp_ms
            for name, factor in (("timestamp", 1000), ("timestamp_ms", 1)):
                bounds[name] = (
                    struct.pack("<q", span[0] * factor),
                    struct.pack("<q", span[1] * factor),
                )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(day),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=self._table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            record_count=file.records,
            column_sizes={},
            value_counts={ids[name]: file.records for name in bounds},
            null_value_counts={ids[name]: 0 for name in bounds},
            nan_value_counts={},
            lower_bounds={ids[name]: low for name, (low, _) in bounds.items()},
            upper_bounds={ids[name]: high for name, (_, high) in bounds.items()},
            split_offsets=None,
        )


def _joined(made: Sequence[Manifest]) -> Manifest:
    """Returns manifests as one, without files, and with one range for each partition."""
    whole = Archive(made)
    ranges = []
    for key, parts in whole.ranges.items():
        start, end = whole.spans[key]
        ranges.append(Range(*key, start, end, sum(one.records for one in parts)))
    names = sorted(set(itertools.chain.from_iterable(one.topics for one in made)))
    topics = {name: topic for name in names if (topic := whole.topic(name)) is not None}
    last = made[-1]
    gaps = tuple(itertools.chain.from_iterable(one.gaps for one in made))
    return Manifest(
        last.run, manifests.ARCHIVE, last.created_ms, topics=topics, ranges=ranges, gaps=gaps
    )


def _schema() -> Any:
    """Returns the columns of the table."""
    from pyiceberg import types

    kinds = (
        ("topic", types.StringType()),
        ("partition", types.IntegerType()),
        ("offset", types.LongType()),
        ("timestamp", types.TimestamptzType()),
        ("timestamp_ms", types.LongType()),
        ("timestampType", types.IntegerType()),
        ("has_timestamp", types.BooleanType()),
        ("append_time_ms", types.LongType()),
        ("key", types.BinaryType()),
        ("value", types.BinaryType()),
    )
    from pyiceberg.schema import Schema

    fields = [
        types.NestedField(number, name, kind, required=False)
        for number, (name, kind) in enumerate(kinds, start=1)
    ]
    header = types.StructType(
        types.NestedField(21, "key", types.StringType(), required=False),
        types.NestedField(22, "value", types.BinaryType(), required=False),
    )
    fields += [
        types.NestedField(11, "headers", types.ListType(13, header, element_required=False)),
        types.NestedField(12, "header_names", types.ListType(14, types.BinaryType(), False)),
    ]
    return Schema(*fields)
