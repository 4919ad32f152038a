"""Which versions of the packages that Spark programs add fit a version of PySpark: one row for each.

The jobs need none of these packages. The extra `spark` installs a PySpark for which there are Spark's
own Kafka connector and Delta, the extra `iceberg-spark` one for which there is Iceberg's runtime, too.
A package for another version of Spark fails when the program runs, with a class or method that is
missing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_SCALA: Final = "2.13"


class Fitting(NamedTuple):
    """A version of PySpark, and the release of each package for it; None: none was published."""

    spark: str
    kafka: str | None
    iceberg: str | None
    delta: str | None

    @property
    def packages(self) -> dict[str, str]:
        """The coordinates of the packages that there are, as `spark.jars.packages` takes them."""
        releases = {
            "kafka": ("org.apache.spark:spark-sql-kafka-0-10", self.kafka),
            "iceberg": (f"org.apache.iceberg:iceberg-spark-runtime-{self.spark}", self.iceberg),
            "delta": (f"io.delta:delta-spark_{self.spark}", self.delta),
        }
        return {
            name: f"{artifact}_{_SCALA}:{release}"
            for name, (artifact, release) in releases.items()
            if release is not None
        }


FITTING: Final = (
    Fitting("4.1", kafka="4.1.1", iceberg="1.12.0", delta="4.4.0"),
    Fitting("4.2", kafka="4.2.0", iceberg=None, delta="4.4.0"),
    Fitting("4.3", kafka=None, iceberg=None, delta=None),
)
"""The versions of PySpark that the jobs run on, the oldest first."""
