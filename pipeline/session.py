"""The Spark session of a job: checked before its start, started at first use, configured here only.

    with Session("mirror", master="local[*]") as session:
        results = session.run(task, items)

`run` gives each item to one task and returns the results in the order of the items. `task` takes an
item and returns a picklable value. It and everything it calls is imported where it runs, so tidelog
must be installed there (docs/pipeline/running.md says how). With the master "inline" Spark is not used: the
items are processed one after the other in this process. With "auto" this is so for items of few
bytes in total, because Spark needs seconds to start, and a job of it costs more than reading some
megabytes. Items that are not done after some seconds go to Spark.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pipeline.errors import SetupError
from pipeline.options import AUTO, DEFAULT_MASTER, INLINE
from pipeline.tasks import pack, unpack, with_our_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OLDEST_PYSPARK: Final = (4, 1)
TOO_NEW_PYSPARK: Final = 5
OLDEST_JAVA: Final = 17
INSTALL: Final = "pip install '.[spark]' in a clone of tidelog"
SMALL_BYTES: Final = 256 << 20
"""What is less than this is done in this process first, with "auto"."""
_HERE_S: Final = 5.0  # about the time Spark takes to start; after it, Spark does the rest
_WATCH_S: Final = 1.0
_LOCAL = re.compile(r"local(?:\[([0-9]+|\*)\])?")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')

# Times are in UTC and exact before 1582. Overflows of int64 raise. Arrow batches are large. A job has as
# many tasks as items, and one worker at a time does each.
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executorEnv.TZ": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.task.maxFailures": "4",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
}


class Session:
    """Spark, or the same tasks in this process without it. `conf` overrides the settings here."""

    def __init__(
        self,
        job: str,
        *,
        master: str = DEFAULT_MASTER,
        conf: Sequence[tuple[str, str]] = (),
        spark: Any = None,
    ) -> None:
        self.job = job
        self.master = master
        self.conf = dict(conf)
        self._given = spark

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_inline(self) -> bool:
        """Whether the session does not use Spark."""
        return self.master == INLINE

    @property
    def has_spark(self) -> bool:
        """Whether Spark has been started."""
        return self._given is not None or "spark" in self.__dict__

    def close(self) -> None:
        """Stops Spark if it was started here."""
        started = self.__dict__.pop("spark", None)
        if started is not None and self._given is None:
            started.stop()

    @cached_property
    def spark(self) -> Any:
        """Returns the SparkSession, which is started at first use. Raises SetupError."""
        if self._given is not None:
            return self._given
        if self.is_inline:
            raise SetupError(f"{self.job} needs Spark for this: --master {INLINE} has none")
        check_pyspark()
        check_java()
        _prepare_workers()
        from pyspark.sql import SparkSession

        master = DEFAULT_MASTER if self.master == AUTO else self.master
        master = with_retries(master, int(self.settings()["spark.task.maxFailures"]))
        builder = SparkSession.builder.master(master).appName(f"tidelog {self.job}")
        for name, value in self.settings().items():
            builder = builder.config(name, value)
        started = builder.getOrCreate()
        started.sparkContext.setLogLevel(os.environ.get("TIDELOG_SPARK_LOG", "ERROR"))
        return started

    def settings(self) -> dict[str, str]:
        """Returns every Spark setting of this session."""
        is_local = self.master == AUTO or self.master.startswith("local")
        local = LOCAL_SETTINGS if is_local else {}
        return {**SETTINGS, **local, **self.conf}

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        watch: Callable[[], None] | None = None,
        size_bytes: int | None = None,
    ) -> list[Any]:
        """Runs `task` for every item, one Spark task each.

        `watch` is called every second meanwhile. `size_bytes` is the approximate number of bytes
        that all items read, if it is known. Spark tries a task that raises four times in all; then
        its error is raised here.
        """
        until_s = self._until_s(size_bytes)
        done: list[Any] = []
        for item in items:
            if time.monotonic() >= until_s:
                break
            done.append(_watched(task(item), watch))
        left = items[len(done) :]
        if not left:
            return done
        context = self.spark.sparkContext
        rows = context.parallelize([pack(item) for item in left], len(left))
        found = _collected(context, rows, with_our_packages(task), watch)
        return [*done, *(unpack(packed) for packed in found)]

    def _until_s(self, size_bytes: int | None) -> float:
        """Returns the time.monotonic() until which items are started in this process."""
        if self.is_inline:
            return math.inf
        if self.master == AUTO and size_bytes is not None and size_bytes < SMALL_BYTES:
            return time.monotonic() + _HERE_S
        return -math.inf


def with_retries(master: str, failures: int) -> str:
    """Returns a local master that retries tasks as a cluster does; plain `local[N]` does not."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return master
    return f"local[{found[1] or 1},{failures}]"


def _watched(result: Any, watch: Callable[[], None] | None) -> Any:
    if watch is not None:
        watch()
    return result


def _collected(context: Any, rows: Any, task: Any, watch: Callable[[], None] | None) -> list[bytes]:
    """Collects results in a thread, because Spark's call returns only when all tasks are done."""
    with ThreadPoolExecutor(1, thread_name_prefix="spark-job") as pool:
        future = pool.submit(lambda: rows.mapPartitions(task).collect())
        try:
            while True:
                wait([future], timeout=_WATCH_S)
                if watch is not None:
                    watch()
                if future.done():
                    return list(future.result())
        except BaseException:
            context.cancelAllJobs()
            raise


def _prepare_workers() -> None:
    """Gives Python workers on this machine the Python of this process.

    They inherit the environment of the JVM that this process starts. In a checkout, where this
    package has its short name, they also find our packages before any others of their names.
    """
    if __package__ == "pipeline":
        here = str(Path(__file__).resolve().parents[1])
        paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        os.environ["PYTHONSAFEPATH"] = "1"  # the working directory comes first otherwise
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def check_pyspark() -> None:
    """Raises SetupError unless PySpark and pyarrow are installed in supported versions."""
    try:
        version = metadata.version("pyspark")
        metadata.version("pyarrow")
    except metadata.PackageNotFoundError as error:
        raise SetupError(f"{error.name} is not installed: {INSTALL}") from None
    numbers = tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2])
    if numbers < OLDEST_PYSPARK or numbers[0] >= TOO_NEW_PYSPARK:
        raise SetupError(
            f"PySpark {version} is installed, and 4.1 or newer (below 5) is needed: {INSTALL}"
        )


def check_java() -> None:
    """Raises SetupError unless there is a Java runtime that Spark 4 supports."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if java is None:
        where = f"below JAVA_HOME ({home})" if home else "on the PATH"
        raise SetupError(
            f"no Java runtime was found {where}: Spark needs Java {OLDEST_JAVA} or newer"
            " (apt install openjdk-17-jre-headless), or choose --master inline where the job can"
        )
    try:
        completed = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{java} does not run: {error}") from error
    found = _JAVA_VERSION.search(completed.stderr + completed.stdout)
    if found is None or int(found[1]) < OLDEST_JAVA:
        said = found[1] if found else "of an unknown version"
        raise SetupError(f"{java} is Java {said}: Spark needs Java {OLDEST_JAVA} or newer")
