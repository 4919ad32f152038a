"""tidelog in a program for Spark: the data sources `timelog` and `timelog-archive`.

    import tidelog.spark

    tidelog.spark.register(spark)
    frame = spark.read.format("timelog").option("subscribe", "orders").load("/var/lib/kafka/data")

`docs/pipeline/source.md` lists the options. In driver and workers only the package `tidelog` is imported
under its own name; a program may have modules called `config`, `storage` or `pipeline`. Importing
this package imports no PySpark.
"""

from __future__ import annotations

from typing import Any

from tidelog._house import room

__all__ = ["NotThere", "OptionError", "SourceError", "register"]

_ERRORS = {
    "NotThere": "pipeline.source.splits",
    "OptionError": "pipeline.timelog.names",
    "SourceError": "pipeline.source.splits",
}


def __getattr__(name: str) -> Any:
    """Returns an error, whose module is imported only when it is asked for."""
    if name not in _ERRORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(room(_ERRORS[name]), name)


def register(spark: Any) -> None:
    """Registers the data sources `timelog` and `timelog-archive` with a SparkSession.

    Raises ImportError if PySpark or pyarrow is missing.
    """
    room("pipeline.timelog.data_source").register(spark)
    room("pipeline.timelog.archive_source").register(spark)
