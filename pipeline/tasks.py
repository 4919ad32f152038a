"""Sends work to Spark workers: as bytes that are unpickled once our packages can be imported there.

A function is pickled by its name, and a worker imports its module before it runs any of our code.
That import fails until tidelog has arrived there (`arrival`). So Spark gets a small nested function,
which is pickled by value. It lets tidelog arrive and unpickles the bytes.
"""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING, Any

from pipeline.arrival import arrive, home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def with_our_packages(task: Callable[[Any], Any]) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Returns a function for `mapPartitions` over packed items; its rows are packed results."""
    packed, place = pack(task), tuple(home())

    def run(items: Iterator[bytes]) -> Iterator[bytes]:
        import importlib
        import pickle

        arrive(*place)
        do = pickle.loads(packed)
        importlib.import_module(f"{place[0]}.tasks").settle()
        for item in items:
            yield pickle.dumps(do(pickle.loads(item)), protocol=5)

    run.__module__ = "__main__"
    return run
