"""Lets an error of ours reach the user of Spark as its sentence, without the trace of Python's calls.

Spark shows the trace of a worker's error in the program, unless an environment variable of the worker
hides it. A worker that fails ends, so that variable concerns nothing else there. Errors that are not
ours keep their traces, and what Spark itself says around an error stays.
"""

from __future__ import annotations

import functools
import os
from types import GeneratorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS = ("tidelog.", "pipeline.", "client.")
_ENTRIES = frozenset(
    {
        *("schema", "reader", "streamReader", "writer", "streamWriter"),
        *("partitions", "pushFilters", "initialOffset", "latestOffset", "read"),
        *("write", "commit", "abort"),
    }
)
_HIDES_TRACES = "SPARK_HIDE_TRACEBACK"
_RUNTIME = "SPARK_PYTHON_RUNTIME"  # is set in workers alone


def shorten(*kinds: type) -> None:
    """Lets the methods of classes that Spark calls fail with short errors."""
    for kind in kinds:
        for name, method in list(vars(kind).items()):
            if name in _ENTRIES:
                setattr(kind, name, _short(method))


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*args: Any, **keywords: Any) -> Any:
        try:
            found = method(*args, **keywords)
        except Exception as error:
            _hide_trace(error)
            raise
        return _each(found) if isinstance(found, GeneratorType) else found

    return called


def _each(found: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from found
    except Exception as error:
        _hide_trace(error)
        raise


def _hide_trace(error: Exception) -> None:
    is_said = type(error).__module__.startswith(_OURS) or "Spark's workers" in str(error)
    if is_said and _RUNTIME in os.environ:
        os.environ[_HIDES_TRACES] = "1"
