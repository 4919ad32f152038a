"""Reads Parquet with Spark, also where columns are timestamps in nanoseconds, which Spark refuses.

pandas writes such files. Spark's timestamps are microseconds, so these are rounded down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.source import locations

if TYPE_CHECKING:
    from collections.abc import Mapping

_AS_LONG: Final = "spark.sql.legacy.parquet.nanosAsLong"


def read(spark: Any, place: str, given: Mapping[str, str]) -> Any:
    """Returns a table of Parquet as a DataFrame; inner fields in nanoseconds are whole numbers.

    Raises the errors of Spark.
    """
    try:
        return spark.read.options(**given).parquet(place)
    except Exception as error:
        if "(NANOS," not in str(error):
            raise
    session = spark.newSession()  # the setting changes no other read of the program
    session.conf.set(_AS_LONG, "true")
    frame = session.read.options(**given).parquet(place)
    return frame.select([_timestamp(frame, name, zone) for name, zone in _columns(frame).items()])


def _columns(frame: Any) -> dict[str, bool | None]:
    """Returns for each column whether it is of instants (True) or without a zone, if in nanoseconds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    system, path = locations.system_of(frame.inputFiles()[0])
    stored = pq.read_schema(path, filesystem=system)
    in_nanoseconds = {
        field.name: field.type.tz is not None
        for field in stored
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns"
    }
    return {name: in_nanoseconds.get(name) for name in frame.columns}


def _timestamp(frame: Any, name: str, is_instant: bool | None) -> Any:
    from pyspark.sql import functions as sql

    quoted = "`" + name.replace("`", "``") + "`"
    if is_instant is None or dict(frame.dtypes)[name] != "bigint":
        return sql.col(quoted)
    micros = f"(({quoted} - pmod({quoted}, 1000)) div 1000)"
    text = (
        f"timestamp_micros({micros})"
        if is_instant
        else f"timestamp_ntz'1970-01-01' + make_dt_interval(0, 0, 0, {micros} / 1000000BD)"
    )
    return sql.expr(text).alias(name)
