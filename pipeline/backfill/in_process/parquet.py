"""Reads Parquet files whose columns mean to Arrow what they mean to Spark."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.backfill.in_process.errors import NeedsSpark
from tidelog.pipeline.backfill.in_process.kinds import name_of, plain, stored_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.in_process.choice import ChooseColumns

_SPARKS_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_SPARKS_VERSION: Final = b"org.apache.spark.version"
_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_LOGICAL: Final = frozenset({"NONE", "STRING", "INT", "DECIMAL", "DATE", "TIMESTAMP"})
_BATCH_ROWS: Final = 8192
_LIST: Final = re.compile(r"\.list\.(?:element|item)(?=\.|$)")


def read(
    paths: Sequence[Path],
    _options: object,
    choose: ChooseColumns,
    limit_bytes: int | None,
) -> tuple[Sequence[str], pa.Table]:
    """Returns the names of all columns, and those columns that `choose` names, of Spark's types.

    `limit_bytes` is the most that they may have in memory: a small file can hold many rows. Raises
    NeedsSpark, and what `choose` raises.
    """
    left_bytes = math.inf if limit_bytes is None else limit_bytes
    with _opened(paths[0]) as file:
        first = file.schema_arrow
    wanted = choose(first.names)
    if any("." in name for name in first.names):  # Arrow takes it for the path of an inner column
        raise NeedsSpark(f"a name of a column of {paths[0]} has a dot")
    batches: list[pa.RecordBatch] = []
    kept = pa.schema([(name, _kind(first.field(name).type)) for name in wanted])
    for path in paths:
        with _opened(path) as file:
            if not file.schema_arrow.equals(first):
                raise NeedsSpark(f"{path} has other columns than {paths[0]}")
            _check_leaves(file, path, wanted)
            _check_stored(file, path, kept)
            try:
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(wanted)):
                    batches.append(_floored(batch.select(list(wanted))).cast(kept))
                    left_bytes -= batch.nbytes
                    if left_bytes < 0:
                        raise NeedsSpark(f"the rows of {path} need much memory")
            except (pa.ArrowException, OSError) as error:
                raise NeedsSpark(f"Arrow does not read {path} ({error})") from None
    return first.names, pa.Table.from_batches(batches, kept)


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "ns"


def _kind(kind: pa.DataType) -> pa.DataType:
    """Returns Spark's type of a column; nanoseconds are rounded down. Raises NeedsSpark."""
    return plain(pa.timestamp("us", kind.tz) if _is_nanoseconds(kind) else kind)


def _floored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns, with microseconds for nanoseconds, rounded down; null stays null."""
    columns = []
    for column in batch.columns:
        if _is_nanoseconds(column.type):
            numbers = column.cast(pa.int64())
            micros = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), 1000)
            mask = column.is_null().to_numpy(zero_copy_only=False)
            columns.append(
                pa.array(micros, pa.int64(), mask=mask).cast(pa.timestamp("us", column.type.tz))
            )
        else:
            columns.append(column)
    return pa.record_batch(columns, names=batch.schema.names)


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise NeedsSpark(f"Arrow does not open {path} ({error})") from None


def _check_leaves(file: pq.ParquetFile, path: Path, wanted: Sequence[str]) -> None:
    """Raises NeedsSpark for columns that are stored in a form that is read in several ways."""
    for number in range(len(file.schema)):
        leaf = file.schema.column(number)
        name = leaf.path.partition(".")[0]
        lists = len(_LIST.findall(leaf.path))
        if name in wanted and leaf.physical_type == "INT96":
            raise NeedsSpark(f"column {leaf.path} of {path} is stored as INT96")
        if name in wanted and (
            leaf.logical_type.type not in _LOGICAL or leaf.max_repetition_level != lists
        ):
            raise NeedsSpark(f"column {leaf.path} of {path} is stored as {leaf.logical_type.type}")


def _check_stored(file: pq.ParquetFile, path: Path, kept: pa.Schema) -> None:
    """Raises NeedsSpark if Spark has written the file with other types, or in its old calendar."""
    known = file.metadata.metadata or {}
    version = known.get(_SPARKS_VERSION, b"3")
    if any(one in known for one in _OLD_CALENDAR) or int(version.partition(b".")[0]) < 3:
        raise NeedsSpark(f"the dates of {path} are in an old calendar")
    if _SPARKS_SCHEMA not in known:
        return
    fields = json.loads(known[_SPARKS_SCHEMA])["fields"]
    stored = {one["name"]: stored_name(one["type"]) for one in fields}
    for name, kind in zip(kept.names, kept.types, strict=True):
        if stored.get(name) != name_of(kind):
            raise NeedsSpark(f"column {name} of {path} was {stored.get(name)} in Spark")
