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

__all__ = ["NotThere", "OptionError", "SourceError", "offsets_behind", "register"]

_FROM = {
    "NotThere": "tidelog.pipeline.source.splits",
    "OptionError": "tidelog.pipeline.timelog.names",
    "SourceError": "tidelog.pipeline.source.splits",
    "offsets_behind": "tidelog.pipeline.timelog.stream_offsets",
}


def __getattr__(name: str) -> Any:
    """Returns a name whose module is imported only when it is asked for."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)


def register(spark: Any) -> None:
    """Registers the data sources `timelog` and `timelog-archive` with a SparkSession.

    Raises ImportError if PySpark or pyarrow is missing.
    """
    from tidelog.pipeline.timelog import archive_source, data_source

    data_source.register(spark)
    archive_source.register(spark)
