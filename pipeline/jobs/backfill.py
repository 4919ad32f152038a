r"""Write a table to a topic; each row gets the event time that a column contains.

The table is files, a table or a query of Spark, or a table or a query of a database (JDBC). Times are
seconds, milliseconds, microseconds or nanoseconds since 1970, also negative, or ISO texts. A column of
Spark's own timestamp type needs no unit. Times without a zone need --time-zone. Rows with a key go to
the partition that the Java clients choose, unless a column names the partition; within a partition they
are ordered by time. Before anything is written, all rows are counted. Rows without a time, rows that
the topic's window (message.timestamp.before.max.ms, after) would reject, and rows that its retention
would delete at once are refused (exit status 1), the last unless --accept-deletion is given. The rows
are staged as Parquet in the directory of the run, so a run that was killed can be repeated with the
same --run, and still writes each row exactly once.

    tidelog pipeline backfill --table history.parquet --time-column day --time-unit iso --key-column id \
        --to-broker b:9092 --topic history --create --partitions 6 --set retention.ms=-1
    tidelog pipeline backfill --table visits.csv --time-column seen --time-zone Europe/Paris \
        --to-broker b:9092 --topic visits --create
    tidelog pipeline backfill --jdbc jdbc:postgresql://db/shop --query 'select * from visits' \
        --time-column seen --to-broker b:9092 --topic visits --dry-run
"""

from __future__ import annotations

import time
import zoneinfo
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from tidelog.pipeline import options as shared
from tidelog.pipeline.declaring import (
    Choice,
    Flag,
    Item,
    Many,
    Needed,
    Option,
    Options,
    Text,
    declared,
)
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.options import RunOptions
from tidelog.pipeline.plan import PLAN, at_work
from tidelog.pipeline.replay import targets
from tidelog.pipeline.replay.targets import Writing
from tidelog.pipeline.times import UNITS, Unit

if TYPE_CHECKING:
    from tidelog.pipeline.session import TaskSession

JOB: Final = "backfill"
Format = Literal["parquet", "csv", "json", "orc", "table"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


def _zone(text: str) -> str:
    """Checks and returns the name of a time zone."""
    try:
        zoneinfo.ZoneInfo(text)
    except (KeyError, OSError, ValueError):
        raise ValueError(
            f"'{text}' is not a time zone: write UTC, or a name such as Europe/Brussels"
        ) from None
    return text


class _Place(Option[Any, Any]):
    def parsed(self, value: Any) -> Any:
        """Returns the text of a place; a DataFrame of Spark stays what it is."""
        return value if hasattr(value, "sparkSession") else super().parsed(value)


@declared
class TableOptions(Options):
    """Which rows are read."""

    section = "which rows"
    one_of = ("table", "sql", "query")
    frame: ClassVar[Any] = None
    """The DataFrame of Spark that a program gave as its table."""

    table: _Place = _Place(
        "files, a directory, an URI, or a table (of --jdbc)", metavar="PATH|NAME"
    )
    sql: Text = Text("a query of Spark, over its catalog or parquet.`PATH`", metavar="QUERY")
    query: Text = Text("with --jdbc: a query that the database runs", metavar="QUERY")
    jdbc: Text = Text("a database; its driver by --conf spark.jars=FILE", metavar="URL")
    input: Choice[Format | None] = Choice(
        "what the table is (by its ending; 'table' for one of Spark's catalog)", choices=FORMATS
    )
    option: Many[tuple[str, str]] = Many(
        "an option of Spark's reader, header=true for CSV or user=me for JDBC say",
        parse=shared.pair,
        metavar="KEY=VALUE",
    )
    password_file: Text = Text("with --jdbc: holds the password, and nothing else", metavar="FILE")

    def __post_init__(self) -> None:
        """Separates a DataFrame from the names of tables."""
        frame: Any = self.table
        if hasattr(frame, "sparkSession"):
            spark = self.spark or frame.sparkSession
            self.__dict__.update(table=None, frame=frame, spark=spark)
        super().__post_init__()


@declared
class Columns(Options):
    """What becomes of a row."""

    section = "what becomes of a row"

    time_column: Needed = Needed("when it happened", metavar="COLUMN")
    time_unit: Choice[Unit | None] = Choice(
        "the unit of the time column (not for timestamps)", choices=UNITS
    )
    time_zone: Text = Text(
        "the zone of times that do not say theirs: UTC, Europe/Brussels",
        parse=_zone,
        metavar="ZONE",
    )
    key_column: Text = Text("the key (none: null keys)", metavar="COLUMN")
    value_columns: Text = Text(
        "what the value is made of (all columns; with raw: one column)", metavar="A,B"
    )
    format: Choice[Literal["json", "raw", "avro"]] = Choice(
        "the value: a JSON object of the columns, one column's bytes as they are, or an Avro"
        " record of the columns with the id of its schema",
        choices=("json", "raw", "avro"),
        default="json",
    )
    registry: Text = Text("with --format avro: the schema registry", metavar="URL")
    subject: Text = Text("with --format avro: where the schema goes (TOPIC-value)", metavar="NAME")
    header_columns: Text = Text(
        "a header each, or all headers of a column as Spark's Kafka source has it", metavar="A,B"
    )
    partition_column: Text = Text("the partition; null: by the key", metavar="COLUMN")
    without_time: Choice[Literal["refuse", "keep", "drop"]] = Choice(
        "rows whose time is null: refuse all, write them without a time, leave them out",
        choices=("refuse", "keep", "drop"),
        default="refuse",
    )
    malformed: Choice[Literal["refuse", "drop"]] = Choice(
        "lines that are no JSON, or have more or fewer fields of CSV than the first: refuse all,"
        " leave them out",
        choices=("refuse", "drop"),
        default="refuse",
    )
    outside: Choice[Literal["refuse", "drop"]] = Choice(
        "rows outside the topic's window: refuse all, leave them out",
        choices=("refuse", "drop"),
        default="refuse",
    )


@declared
class BackfillOptions(RunOptions, Writing, Columns, TableOptions):
    """The options of the job."""

    job = JOB
    section = "the topic"

    topic: Needed = Needed("where to", metavar="TOPIC")
    partitions: Item[int] = Item(
        "of a topic that is made (1)", parse=shared.whole, default=1, metavar="N"
    )
    accept_deletion: Flag = targets.accept_deletion()


OPTIONS: Final = BackfillOptions


def run(options: BackfillOptions, session: TaskSession) -> int:
    """Stages, counts and writes; returns the exit status."""
    _check(options)
    from tidelog.pipeline.backfill import run as work

    now_ms = time.time_ns() // 1_000_000
    name, directory = options.run, options.run_directory
    if options.dry_run:
        has_plan = (directory / PLAN).exists()
        return OK if has_plan else work.prepare(options, session, directory, name, now_ms)
    with at_work(directory):
        status = OK
        if not (directory / PLAN).exists():
            status = work.prepare(options, session, directory, name, now_ms)
        return status if status != OK else work.write(options, session, directory, name)


def _check(options: BackfillOptions) -> None:
    """Raises UsageError for options that contradict each other."""
    if options.partitions < 1:
        raise UsageError("--partitions: a topic has at least one")
    if options.format == "raw" and (options.value_columns is None or "," in options.value_columns):
        raise UsageError("--format raw needs one --value-columns COLUMN")
    if (options.format == "avro") != (options.registry is not None):
        raise UsageError("--format avro and --registry URL go together")
    if options.jdbc is not None and options.table is None and options.query is None:
        raise UsageError("--jdbc needs --table or --query")
    given = (options.table, options.sql, options.query, options.frame)
    if all(one is None for one in given):
        raise UsageError("say --table, --sql, or --jdbc with --table or --query")
    if options.query is not None and options.jdbc is None:
        raise UsageError("--query is run by a database: say --jdbc URL (or --sql for one of Spark)")
