"""Where the tasks of a job run: in Spark, or in this process.

    with TaskSession("mirror") as session:
        results = session.run(task, items, sizes=sizes)

`run` gives each item to one task and returns the results in the order of the items. `task` takes an
item and returns a picklable value. It and everything it calls is imported where it runs, so tidelog
must be installed there (docs/pipeline/running.md says how).

The master "auto", the default, does in this process what is small (`is_small`), because Spark needs
seconds to start, and a job of it costs more than reading some megabytes; for the rest it starts
Spark here. "inline" never uses Spark. Any other master, spark-submit's too, and a SparkSession of
the caller's get all work.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from tidelog.pipeline import spark_start
from tidelog.pipeline.errors import SetupError
from tidelog.pipeline.options import AUTO, INLINE
from tidelog.pipeline.tasks import Reports, pack, unpack, with_our_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SMALL_BYTES: Final = 256 << 20
"""What is read in this process, as far as nothing else is known of it."""
TRIED_S: Final = 5.0
"""After so long the rate of what is done counts; before, it may be that of starting up."""
SPARK_START_S: Final = 10.0
"""About what Spark takes until its first task is done."""
WATCH_S: Final = 1.0
_WORKER_PYTHON: Final = "PYTHON_VERSION_MISMATCH"


def is_small(left_bytes: int | None, done_bytes: int = 0, elapsed_s: float = 0.0) -> bool:
    """Returns whether the work that is left ends sooner in this process than in Spark.

    That is assumed of less than SMALL_BYTES, and not where the size is unknown (None). After
    TRIED_S the rate so far says how long the rest takes, and it may take as long as Spark's start.
    """
    if left_bytes is None:
        return False
    if elapsed_s < TRIED_S or done_bytes <= 0:
        return left_bytes < SMALL_BYTES
    return elapsed_s * left_bytes / done_bytes <= SPARK_START_S


class TaskSession:
    """Spark, or the same tasks in this process without it.

    `master` None: that of spark-submit, or "auto". `conf` overrides the settings of `spark_start`.
    `spark` is a SparkSession of the caller's: it is used for everything, and neither changed nor
    stopped. `is_verbose`: Spark's log goes to standard error.
    """

    def __init__(
        self,
        job: str,
        *,
        master: str | None = None,
        conf: Sequence[tuple[str, str]] = (),
        spark: Any = None,
        is_verbose: bool = False,
    ) -> None:
        self.job = job
        self.conf = dict(conf)
        self.is_verbose = is_verbose
        self._given = spark
        if master is None and not spark_start.is_submitted() and spark is None:
            master = AUTO
        self.master = master

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def has_spark(self) -> bool:
        """Whether Spark is there."""
        return self._given is not None or "spark" in self.__dict__

    @property
    def chosen(self) -> str | None:
        """How Spark was chosen for all work, as a clause; None if it was not."""
        if self._given is not None:
            return "a SparkSession is given"
        if self.master is None:
            return "spark-submit has started it"
        if self.master not in {AUTO, INLINE}:
            return f"the master is {self.master}"
        return "settings of Spark are given" if self.conf else None

    def close(self) -> None:
        """Stops Spark if a job has started it and no other uses it."""
        if self.__dict__.pop("spark", None) is not None and self._given is None:
            spark_start.release()

    @cached_property
    def spark(self) -> Any:
        """Returns the SparkSession: the caller's, the program's, or one started now.

        Raises SetupError.
        """
        if self._given is None and self.master == INLINE:
            raise SetupError(f"{self.job} needs Spark for this: --master {INLINE} has none")
        master = None if self.master == AUTO else self.master
        found = self._given or spark_start.acquire(
            self.job, master, self.conf, is_verbose=self.is_verbose
        )
        if not self.is_verbose:
            spark_start.hide_query_errors()
        return found

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        watch: Callable[[int], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        """Runs `task` for every item, one Spark task each. Raises what a task raises.

        `sizes` are the approximate numbers of bytes that the items read, if they are known. `watch`
        is called every second meanwhile, in a thread of its own, with the sum of the sizes of the
        items that are done; without sizes, with their number. An error that may pass is raised
        after the last of Spark's attempts, any other error at once.
        """
        weights = [1] * len(items) if sizes is None else sizes
        done = _Done()
        results: list[Any] = []
        with _watched(watch, done):
            for item, weight in zip(items, weights, strict=True):
                if not self._is_for_here(None if sizes is None else sum(sizes), done):
                    break
                results.append(task(item))
                done.here += weight
            left = list(zip(weights, items, strict=True))[len(results) :]
            return [*results, *(self.on_spark(task, left, done) if left else ())]

    def _is_for_here(self, total_bytes: int | None, done: _Done) -> bool:
        """Returns whether the next item is for this process."""
        if self.master == INLINE:
            return True
        left_bytes = None if total_bytes is None else total_bytes - done.here
        return self.master == AUTO and is_small(left_bytes, done.here, done.elapsed_s)

    def on_spark(
        self, task: Callable[[Any], Any], left: Sequence[tuple[int, Any]], done: _Done
    ) -> list[Any]:
        """Runs `task` for the (size, item) pairs in Spark."""
        from pyspark.accumulators import AddingAccumulatorParam

        try:
            context = self.spark.sparkContext
        except AttributeError as error:
            raise SetupError(
                "this SparkSession has no SparkContext (Spark Connect): the jobs need a classic one"
            ) from error
        reports = Reports(
            context.accumulator(0),
            context.accumulator((), AddingAccumulatorParam(())),
        )
        done.there = reports.done
        rows = context.parallelize([pack(pair) for pair in left], len(left))
        work = with_our_packages(task, reports, spark_start.attempts(context))
        group = f"tidelog {self.job} {uuid.uuid4()}"
        found = _collected(context, rows.mapPartitions(work), group, reports.errors)
        return [unpack(packed) for packed in found]


class _Done:
    """How much is done: `here` in this process, and in Spark's accumulator `there`."""

    def __init__(self) -> None:
        self.here = 0
        self.there: Any = None
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """The seconds since the work began."""
        return time.monotonic() - self._began_s

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.here + (0 if self.there is None else int(self.there.value))


@contextlib.contextmanager
def _watched(watch: Callable[[int], None] | None, done: _Done) -> Iterator[None]:
    """Calls `watch` every second in a thread."""
    if watch is None:
        yield
        return
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(WATCH_S):
            with contextlib.suppress(OSError):  # a terminal that is gone
                watch(done.total)

    thread = threading.Thread(target=look, name="job-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _collected(context: Any, rows: Any, group: str, errors: Any) -> list[bytes]:
    """Collects results in a thread, because Spark's call returns only when all tasks are done.

    The first error that a task reports ends the others.
    """

    def collect() -> list[bytes]:
        context.setJobGroup(group, group, interruptOnCancel=True)
        return list(rows.collect())

    with ThreadPoolExecutor(1, thread_name_prefix="spark-job") as pool:
        future = pool.submit(collect)
        try:
            while not future.done():
                wait([future], timeout=WATCH_S)
                _raise_reported(errors)
            _raise_reported(errors)
            return future.result()
        except BaseException as error:
            context.cancelJobGroup(group)
            if _WORKER_PYTHON in str(error):
                raise _other_python(str(error)) from error
            raise


def _raise_reported(errors: Any) -> None:
    """Raises the first error that a task has reported."""
    for packed in itertools.islice(errors.value, 1):
        error, said = unpack(packed)
        if isinstance(error, ImportError):
            raise SetupError(
                f"Spark's workers ({said}) lack a part of tidelog: {error}; install tidelog[spark] in their"
                " Python, or pack an environment (docs/pipeline/running.md)"
            )
        error.add_note(said)
        raise error


def _other_python(said: str) -> SetupError:
    """Returns the error for workers that run another version of Python than the driver."""
    line = next(line for line in said.splitlines() if _WORKER_PYTHON in line)
    return SetupError(
        f"Spark's workers run another Python than the driver: set PYSPARK_PYTHON ({line.strip()})"
    )
