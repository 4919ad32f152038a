"""Starts Spark for a job: checks what is installed, sets what the job needs, keeps Spark's log.

Who chooses the master: the job's --master, else spark-submit, else `local[*]`. Under spark-submit
the JVM runs already, and its settings are the user's: only the settings that make times exact are
set over them (`EXACT`); the others (`USUAL`) are set where the user has not set them.
The address of Spark's UI is an environment variable of the JVM. Spark-submit has started the JVM
without it, so with a local master the UI is off there, unless the user asks for it.

What the JVM that is started here writes to standard error goes to a file, because it is pages of
warnings and stack traces. The file is deleted at the end of the process unless a job names it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.errors import SetupError
from tidelog.pipeline.options import DEFAULT_MASTER, INLINE, LOCAL_MASTER

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

OLDEST_PYSPARK: Final = (4, 1)
TOO_NEW_PYSPARK: Final = 5
OLDEST_JAVA: Final = 17
INSTALL: Final = "pip install '.[spark]' in a clone of tidelog"
LOG_LEVEL: Final = "TIDELOG_SPARK_LOG"
"""An environment variable: the level of Spark's log."""
_LOCAL: Final = re.compile(LOCAL_MASTER)
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]+)')
_FAILURE: Final = re.compile(r"(?:^Error|\w+(?:Exception|Error)): (.+)")
_ATTEMPTS: Final = "spark.task.maxFailures"
_MASTER: Final = "spark.master"
_NAME: Final = "spark.app.name"
_EXECUTOR_JAVA: Final = "spark.executor.extraJavaOptions"
_UTC: Final = "-Duser.timezone=UTC"
_LOOPBACK: Final = "127.0.0.1"
_LOCAL_IP: Final = "SPARK_LOCAL_IP"  # where the UI listens; without it, on every interface
_UI: Final = "spark.ui.enabled"
_QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

# Times are in UTC and exact before 1582; overflows of int64 raise.
EXACT: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.TZ": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# Arrow batches are large. A job has as many tasks as items, and one worker at a time does each. The
# jobs show progress themselves.
USUAL: Final = {
    "spark.driver.extraJavaOptions": _UTC,
    _EXECUTOR_JAVA: _UTC,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
    _ATTEMPTS: "4",
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL: Final = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
}


def is_submitted() -> bool:
    """Returns whether spark-submit has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _Shared:
    """The Spark that jobs of this process have started: the last of them stops it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Any = None
        self.users = 0


_shared: Final = _Shared()


def acquire(
    job: str, master: str | None, conf: Mapping[str, str], *, is_verbose: bool = False
) -> Any:
    """Returns a SparkSession for a job: the one in this process, or one that is started now.

    `release` must follow. `conf` overrides every other setting of one that is started.
    `is_verbose`: its log goes to standard error. Raises SetupError.
    """
    with _shared.lock:
        found = _running()
        if found is None:
            found = _shared.session = _start(job, master, conf, is_verbose=is_verbose)
            _shared.users = 0
        if _shared.session is not None:
            _shared.users += 1
        return found


def release() -> None:
    """Stops a Spark that was started by `acquire`, unless another job uses it."""
    with _shared.lock:
        _shared.users -= 1
        if _shared.session is not None and _shared.users <= 0:
            _shared.session.stop()
            _shared.session = None


def hide_query_errors() -> None:
    """Lets PySpark not log the errors of queries of jobs, which the jobs raise themselves.

    It writes some of them as JSON of ten kilobytes, with the trace of Java. Those of other queries of
    the program stay.
    """
    from pyspark.logger import PySparkLogger

    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_is_not_of_job)  # is added once only


def _is_not_of_job(_: logging.LogRecord) -> bool:
    """Returns whether no job has called what logs something."""
    calls = traceback.walk_stack(None)
    return not any(frame.f_globals["__name__"].startswith(f"{__package__}.") for frame, _ in calls)


def _running() -> Any:
    """Returns the SparkSession that is there in this process already, or None."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if getattr(SparkContext, "_active_spark_context", None) is None:
        _shared.session = None  # a program has stopped it
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _start(
    job: str, master: str | None, conf: Mapping[str, str], *, is_verbose: bool = False
) -> Any:
    """Starts Spark; returns the SparkSession. Raises SetupError."""
    check_pyspark()
    if not is_submitted():
        check_java()
    _prepare_workers()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    given: dict[str, str] | None = None
    if is_submitted():
        getattr(SparkContext, "_ensure_initialized")()  # noqa: B009 - connects to the JVM
        given = dict(SparkConf().getAll())
        master = master or given.get(_MASTER)
    wanted = settings(master or DEFAULT_MASTER, conf, given)
    spark_conf = SparkConf().setAll(list(wanted.items()))
    if given is None or given.get(_NAME) in {
        None,
        Path(sys.argv[0]).name,
    }:  # spark-submit takes the script's
        spark_conf.setAppName(f"tidelog {job}")
    if not is_submitted() and getattr(SparkContext, "_gateway", None) is None:
        _launch(spark_conf, is_local=_is_local(wanted[_MASTER]), is_verbose=is_verbose)
    context = SparkContext.getOrCreate(spark_conf)
    level = os.environ.get(LOG_LEVEL) or ("ERROR" if is_submitted() and not is_verbose else "WARN")
    context.setLogLevel(level)
    return SparkSession.builder.getOrCreate()


def settings(
    master: str, conf: Mapping[str, str], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns Spark's settings for a job, with the master; `given` are those of spark-submit."""
    usual = {**USUAL, **(LOCAL if _is_local(master) else {})}
    if given is not None and _is_local(master) and _LOCAL_IP not in os.environ:
        usual[_UI] = "false"
    given = {} if given is None else given
    found = {name: value for name, value in usual.items() if name not in given}
    if _EXECUTOR_JAVA in given:
        found[_EXECUTOR_JAVA] = f"{given[_EXECUTOR_JAVA]} {_UTC}"
    found |= {**EXACT, **conf}
    attempts = found.get(_ATTEMPTS) or given[_ATTEMPTS]
    return {**found, _MASTER: with_retries(master, int(attempts))}


def _is_local(master: str) -> bool:
    return master.startswith("local")


def with_retries(master: str, failures: int) -> str:
    """Returns a local master that retries tasks as a cluster does; plain `local[N]` does not."""
    found = _LOCAL.fullmatch(master)
    if found is None or found[2] is not None:
        return master
    return f"local[{found[1] or 1},{failures}]"


def attempts(context: Any) -> int:
    """Returns how often a running Spark tries a task in all."""
    local = _LOCAL.fullmatch(context.master)
    if local is not None:
        return int(local[2] or 1)
    return int(context.getConf().get(_ATTEMPTS, "4"))


# --- the JVM ------------------------------------------------------------------------------------

_log: Path | None = None
_is_log_kept = False


def kept_log() -> Path | None:
    """Returns the file with Spark's log, which then outlives the process; None if there is none."""
    global _is_log_kept  # noqa: PLW0603 - a process starts one JVM
    _is_log_kept = True
    return _log


def _launch(conf: Any, *, is_local: bool, is_verbose: bool) -> None:
    """Starts the JVM that all Spark contexts of this process use."""
    global _log  # noqa: PLW0603 - a process starts one JVM
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    initialize = getattr(SparkContext, "_ensure_initialized")  # noqa: B009
    if is_local:  # Spark's own servers, its UI above all, are for this machine alone
        os.environ.setdefault(_LOCAL_IP, _LOOPBACK)
    if is_verbose:
        initialize(conf=conf)
        return
    descriptor, name = tempfile.mkstemp(prefix="tidelog-spark-", suffix=".log")
    try:
        initialize(gateway=launch_gateway(conf, {"stderr": descriptor}), conf=conf)
    except Exception as error:
        reason = _reason(Path(name)) or "its log says why"
        raise SetupError(f"Spark does not start: {reason} (Spark's log: {name})") from error
    finally:
        os.close(descriptor)
    _log = Path(name)
    atexit.register(_forget_log)


def _reason(log: Path) -> str | None:
    """Returns the first line of a log that tells of an error, without the names of classes."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        found = _FAILURE.search(line)
        if found is not None:
            return found[1].strip()
    return None


def _forget_log() -> None:
    if _log is not None and not _is_log_kept:
        with contextlib.suppress(OSError):
            _log.unlink()


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


# --- what is installed --------------------------------------------------------------------------


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
            f" (apt install openjdk-17-jre-headless), or choose --master {INLINE} where the job can"
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
