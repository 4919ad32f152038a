"""tidelog in a program for Spark: the data sources `timelog` and `timelog-archive`.

    import tidelog.spark

    tidelog.spark.register(spark)
    frame = spark.read.format("timelog").option("subscribe", "orders").load("/var/lib/kafka/data")

`docs/pipeline/source.md` lists the options. In driver and workers only the package `tidelog` is imported
under its own name; a program may have modules called `config`, `storage` or `pipeline`. Importing
this package imports no PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["NotThere", "OptionError", "SourceError", "register"]

_ERRORS = {
    "NotThere": "tidelog.pipeline.source.splits",
    "OptionError": "tidelog.pipeline.timelog.names",
    "SourceError": "tidelog.pipeline.source.splits",
}


def __getattr__(name: str) -> Any:
    """Returns an error, whose module is imported only when it is asked for."""
    if name not in _ERRORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ERRORS[name]), name)


def register(spark: Any) -> None:
    """Registers the data sources `timelog` and `timelog-archive` with a SparkSession.

    Raises ImportError if PySpark or pyarrow is missing.
    """
    from tidelog.pipeline.timelog import archive_source, data_source

    data_source.register(spark)
    archive_source.register(spark)
