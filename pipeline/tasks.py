"""Sends work to Spark workers: as bytes that are unpickled once our packages can be imported there.

A function is pickled by its name, and a worker imports its module before it runs any of our code.
That import fails until tidelog has arrived there (`arrival`). So Spark gets a small nested function,
which is pickled by value. It lets tidelog arrive and unpickles the bytes.

An error that a retry cannot cure (a fault in data, say) is not raised in the worker: Spark would
try the task again, and log each failure with its Java stack trace. It goes to the driver in an
accumulator instead, and the driver raises it. An error that may pass is raised, so that Spark
retries the task, until the last attempt.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import traceback
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import ClientError, ClusterUnreachable, Fenced, RequestError
from tidelog.pipeline.arrival import arrive, home
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.source.splits import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS: Final = (PipelineError, SourceError, ClientError)


def pack(value: Any) -> bytes:
    """Returns an item or a result as bytes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Any:
    """Returns the value of packed bytes."""
    return pickle.loads(data)


_is_settled = False


def settle() -> None:
    """Excludes a worker's modules from garbage collection, from its first task on.

    PySpark collects garbage after each task, and finds only what pandas and similar libraries have
    imported. That took a third of the CPU of a small task.
    """
    global _is_settled  # noqa: PLW0603 - once for each process
    if not _is_settled:
        _is_settled = True
        gc.freeze()


class Reports(NamedTuple):
    """Spark's accumulators for what tasks report beside their results.

    `done` is the sum of the sizes of the items that are done. `errors` has the packed errors.
    """

    done: Any
    errors: Any


def with_our_packages(
    task: Callable[[Any], Any], reports: Reports, attempts: int
) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Returns a function for `mapPartitions` over packed pairs (size, item).

    Its rows are packed results; a task that fails for good has none. `attempts` is how often Spark
    tries a task in all.
    """
    packed, place = pack(task), tuple(home())
    done, errors = reports

    def run(items: Iterator[bytes]) -> Iterator[bytes]:
        import pickle
        import sys

        try:
            arrive(*place)
            from tidelog.pipeline.tasks import work
        except ImportError as error:
            errors.add((pickle.dumps((error, sys.executable)),))
            return
        yield from work(packed, items, (done, errors), attempts)

    run.__module__ = "__main__"
    return run


def work(
    packed: bytes, items: Iterator[bytes], reports: tuple[Any, Any], attempts: int
) -> Iterator[bytes]:
    """Does the items in a worker. Raises an error that may pass, unless this is the last attempt."""
    done, errors = reports
    try:
        do = unpack(packed)
        settle()
        for item in items:
            size, one = unpack(item)
            result = pack(do(one))
            done.add(size)
            yield result
    except Exception as error:
        if may_pass(error) and _attempt() < attempts:
            raise
        errors.add((pack((portable(error), traceback.format_exc())),))


def may_pass(error: BaseException) -> bool:
    """Returns whether a task that failed with this error may succeed when it is tried again."""
    if isinstance(error, RequestError):
        return error.retriable
    if isinstance(error, (OSError, MemoryError, ClusterUnreachable, Fenced)):
        return True
    cause = error.__cause__
    return isinstance(error, SourceError) and cause is not None and may_pass(cause)


def _attempt() -> int:
    """Returns the number of this attempt of the task, from 1 on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else 1 + context.attemptNumber()


def portable(error: Exception) -> Exception:
    """Returns the error if it survives pickling, else one of the same kind and message."""
    with contextlib.suppress(Exception):  # its class may want any arguments
        if str(unpack(pack(error))) == str(error):
            return error
    kind = next((one for one in _OURS if isinstance(error, one)), None)
    return PipelineError(f"{type(error).__name__}: {error}") if kind is None else kind(str(error))
