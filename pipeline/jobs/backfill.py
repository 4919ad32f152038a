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

import argparse
import time
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.pipeline import options as shared
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.plan import PLAN, at_work
from tidelog.pipeline.replay import targets
from tidelog.pipeline.times import UNITS

if TYPE_CHECKING:
    from tidelog.pipeline.session import Session

JOB: Final = "backfill"
FORMATS: Final = ("parquet", "csv", "json", "orc", "table")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the job."""
    _add_table(parser.add_argument_group("which rows"))
    _add_columns(parser.add_argument_group("what becomes of a row"))
    targets.add_target(parser)
    one = parser.add_argument_group("the topic")
    one.add_argument("--topic", required=True, metavar="TOPIC", help="where to")
    one.add_argument(
        "--partitions", type=int, default=1, metavar="N", help="of a topic that is made (1)"
    )
    targets.add_accept_deletion(one)
    shared.add_run(parser)


def _add_table(group: argparse._ArgumentGroup) -> None:
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--table", metavar="PATH|NAME", help="files, a directory, an URI, or a table (of --jdbc)"
    )
    one.add_argument(
        "--sql", metavar="QUERY", help="a query of Spark, over its catalog or parquet.`PATH`"
    )
    one.add_argument("--query", metavar="QUERY", help="with --jdbc: a query that the database runs")
    group.add_argument(
        "--jdbc", metavar="URL", help="a database; its driver by --conf spark.jars=FILE"
    )
    group.add_argument(
        "--input",
        choices=FORMATS,
        help="what the table is (by its ending; 'table' for one of Spark's catalog)",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        type=shared.pair,
        metavar="KEY=VALUE",
        help="an option of Spark's reader, header=true for CSV or user=me for JDBC say",
    )
    group.add_argument(
        "--password-file", metavar="FILE", help="with --jdbc: holds the password, and nothing else"
    )


def _add_columns(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--time-column", required=True, metavar="COLUMN", help="when it happened")
    add("--time-unit", choices=UNITS, help="the unit of the time column (not for timestamps)")
    add(
        "--time-zone",
        type=_zone,
        metavar="ZONE",
        help="the zone of times that do not say theirs: UTC, Europe/Brussels",
    )
    add("--key-column", metavar="COLUMN", help="the key (none: null keys)")
    add(
        "--value-columns",
        metavar="A,B",
        help="what the value is made of (all columns; with raw: one column)",
    )
    add(
        "--format",
        choices=["json", "raw", "avro"],
        default="json",
        help="the value: a JSON object of the columns, one column's bytes as they are, or an Avro"
        " record of the columns with the id of its schema",
    )
    add("--registry", metavar="URL", help="with --format avro: the schema registry")
    add("--subject", metavar="NAME", help="with --format avro: where the schema goes (TOPIC-value)")
    add(
        "--header-columns",
        metavar="A,B",
        help="a header each, or all headers of a column as Spark's Kafka source has it",
    )
    add("--partition-column", metavar="COLUMN", help="the partition; null: by the key")
    add(
        "--without-time",
        choices=["refuse", "keep", "drop"],
        default="refuse",
        help="rows whose time is null: refuse all, write them without a time, leave them out",
    )
    add(
        "--malformed",
        choices=["refuse", "drop"],
        default="refuse",
        help="lines that are no JSON, or have more or fewer fields of CSV than the first: refuse all,"
        " leave them out",
    )
    add(
        "--outside",
        choices=["refuse", "drop"],
        default="refuse",
        help="rows outside the topic's window: refuse all, leave them out",
    )


def run(options: argparse.Namespace, session: Session) -> int:
    """Stages, counts and writes; returns the exit status.

    `options.frame`, if there is one, is a DataFrame of Spark, which then is the table.
    """
    _check(options)
    from tidelog.pipeline.backfill import run as work

    now_ms = time.time_ns() // 1_000_000
    name = options.run or shared.new_run_id(JOB, now_ms)
    directory = Path(options.out) / name
    if options.dry_run:
        has_plan = (directory / PLAN).exists()
        return OK if has_plan else work.prepare(options, session, directory, name, now_ms)
    with at_work(directory):
        status = OK
        if not (directory / PLAN).exists():
            status = work.prepare(options, session, directory, name, now_ms)
        return status if status != OK else work.write(options, session, directory, name)


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError for options that contradict each other."""
    if options.partitions < 1:
        raise UsageError("--partitions: a topic has at least one")
    if options.format == "raw" and (options.value_columns is None or "," in options.value_columns):
        raise UsageError("--format raw needs one --value-columns COLUMN")
    if (options.format == "avro") != (options.registry is not None):
        raise UsageError("--format avro and --registry URL go together")
    if options.jdbc is not None and options.table is None and options.query is None:
        raise UsageError("--jdbc needs --table or --query")
    given = (options.table, options.sql, options.query, getattr(options, "frame", None))
    if all(one is None for one in given):
        raise UsageError("say --table, --sql, or --jdbc with --table or --query")
    if options.query is not None and options.jdbc is None:
        raise UsageError("--query is run by a database: say --jdbc URL (or --sql for one of Spark)")


def _zone(text: str) -> str:
    """Checks and returns the name of a time zone."""
    try:
        zoneinfo.ZoneInfo(text)
    except (KeyError, OSError, ValueError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no time zone: write UTC, or a name such as Europe/Brussels"
        ) from None
    return text
