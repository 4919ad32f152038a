"""The rule by which a backfill runs in this process, and its rows if it does.

It does so where all of this is so; else NeedsSpark says which is not:

- nobody has chosen Spark: by a master, its settings, spark-submit or a SparkSession;
- the table is local files (`files`) of CSV, JSON lines or Parquet, of at most SMALL_BYTES;
- the options of the reader are those that are known here, and Spark would read the files in the same
  way (`csv_lines`, `json_lines`, `parquet`);
- the types of the columns (`kinds`) and their values (`numbers`, `texts`) come out as in Spark, byte for
  byte.

With the master "inline" the size does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.pipeline.backfill import tables
from tidelog.pipeline.backfill.in_process import csv_lines, json_lines, parquet
from tidelog.pipeline.backfill.in_process.errors import NeedsSpark
from tidelog.pipeline.backfill.in_process.files import local_files
from tidelog.pipeline.backfill.in_process.staging import RowsInProcess
from tidelog.pipeline.backfill.wanted import wanted
from tidelog.pipeline.options import INLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from tidelog.pipeline.jobs.backfill import BackfillOptions
    from tidelog.pipeline.session import Session

    ChooseColumns: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
    """Of the names of all columns, returns those that are needed."""
    ReadFiles: TypeAlias = Callable[
        [Sequence[Path], BackfillOptions, ChooseColumns, int | None],
        tuple[Sequence[str], pa.Table],
    ]
    """Reads files of one format. The last argument is the most bytes of memory, None for any number.

    Returns the names of all columns, and the table of those that were chosen. Raises NeedsSpark.
    """

SMALL_BYTES: Final = 32 << 20
"""What is made here in about the time that Spark takes to start: in files, and of Parquet in memory."""
_READERS: Final[Mapping[str, ReadFiles]] = {
    "csv": csv_lines.read,
    "json": json_lines.read,
    "parquet": parquet.read,
}


def rows_in_process(
    session: Session, options: BackfillOptions, partition_count: int
) -> RowsInProcess:
    """Returns the rows of the table, in memory. Raises NeedsSpark, and UsageError as Spark's way does."""
    if session.chosen is not None:
        raise NeedsSpark(session.chosen)
    if getattr(options, "frame", None) is not None:
        raise NeedsSpark("the table is a DataFrame")
    if options.sql is not None or options.jdbc is not None:
        raise NeedsSpark("the table is a query of Spark or in a database")
    kind = tables.format_of(options)
    if kind not in _READERS:
        raise NeedsSpark(f"the table is {kind}")
    paths = local_files(options.table)
    limit_bytes = None if session.master == INLINE else SMALL_BYTES
    if limit_bytes is not None and sum(path.stat().st_size for path in paths) > limit_bytes:
        raise NeedsSpark(f"the table has more than {limit_bytes >> 20} MB")

    def choose(names: Sequence[str]) -> Sequence[str]:
        if "" in names or len({name.lower() for name in names}) < len(names):
            raise NeedsSpark("names of columns are empty or differ in case alone")
        return wanted(options, names).all

    names, table = _READERS[kind](paths, options, choose, limit_bytes)
    return RowsInProcess(names, table, options, partition_count)
