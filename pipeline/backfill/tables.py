"""Opens the table of a backfill with Spark: files, a catalog's table, a query, JDBC, or a DataFrame.

Times that texts or a database have without a zone stay without one (Spark would take them for times of
its session's zone), so that `staging` can ask for --time-zone.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.backfill import malformed, nanoseconds
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.backfill.malformed import Malformed
    from tidelog.pipeline.jobs.backfill import BackfillOptions
    from tidelog.pipeline.session import TaskSession

_ENDINGS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".orc": "orc",
}
_TIMESTAMP_TYPE: Final = "spark.sql.timestampType"
_IN_URL: Final = re.compile(  # key=..., //user:...@ and Oracle's thin:user/...@
    r"((?:password|pwd|secret|token)=)[^;&]*|(//[^/@:]*:|thin:[^/@:]*/)[^@]*(?=@)", re.IGNORECASE
)


def opened(session: TaskSession, options: BackfillOptions) -> tuple[Any, Malformed]:
    """Returns the table as a DataFrame, without broken lines of text, and what is known of these.

    Raises UsageError, and the errors of Spark.
    """
    if _is_text(options):
        spark = session.spark
        kind, given = format_of(options), dict(options.option)
        if options.time_zone is not None:
            given.setdefault("timeZone", options.time_zone)
        with _naive_times_kept(spark):
            return malformed.read(spark, kind, options.table, given)
    return _opened(session, options), malformed.NONE


def _is_text(options: BackfillOptions) -> bool:
    is_file = options.jdbc is None and options.sql is None and options.table is not None
    has_frame = getattr(options, "frame", None) is not None
    return is_file and not has_frame and format_of(options) in {"csv", "json"}


def _opened(session: TaskSession, options: BackfillOptions) -> Any:
    frame = getattr(options, "frame", None)
    if frame is not None:
        return frame
    spark = session.spark
    if options.jdbc is not None:
        return _of_database(spark, options)
    if options.sql is not None:
        return spark.sql(options.sql)
    kind = format_of(options)
    if kind == "table":
        return spark.table(options.table)
    given = dict(options.option)
    if kind == "parquet":
        return nanoseconds.read(spark, options.table, given)
    return spark.read.options(**given).format(kind).load(options.table)


def format_of(options: BackfillOptions) -> str:
    """Returns what --table is, by --input or its ending. Raises UsageError."""
    kind = options.input or _ENDINGS.get(Path(options.table.rstrip("/")).suffix.lower())
    if kind is None:
        raise UsageError(f"what is {options.table}? say --input parquet, csv, json, orc or table")
    return str(kind)


def named(options: BackfillOptions) -> str:
    """Returns what a table is called in plans and reports."""
    if getattr(options, "frame", None) is not None:
        return str(options.frame)
    return str(options.table or options.query or options.sql)


def without_password(text: str) -> str:
    """Returns a URL, or a sentence with one, without the password in it."""
    return _IN_URL.sub(r"\1\2***", text)


def _of_database(spark: Any, options: BackfillOptions) -> Any:
    reader = spark.read.format("jdbc").option("url", options.jdbc)
    reader = reader.option("preferTimestampNTZ", "true")
    if options.query is None:
        reader = reader.option("dbtable", options.table)
    else:
        reader = reader.option("query", options.query)
    if options.password_file is not None:
        password = Path(options.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        reader = reader.option("password", password)
    for key, value in options.option:
        reader = reader.option(key, value)
    return reader.load()


@contextlib.contextmanager
def _naive_times_kept(spark: Any) -> Iterator[None]:
    """Lets Spark infer times without a zone as such, and not as times of the session's zone."""
    before = spark.conf.get(_TIMESTAMP_TYPE)
    spark.conf.set(_TIMESTAMP_TYPE, "TIMESTAMP_NTZ")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMP_TYPE, before)
