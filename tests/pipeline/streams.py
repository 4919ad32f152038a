"""Streaming queries that are run to their end.

Spark gives the process of a Python source ten seconds to import PySpark and to say so, and no setting gives
it more: a query that has ended for that, and not sooner, is begun again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

WORKER_CONNECTS_WITHIN_S = 10
ENDS_WITHIN_S = 200
TRIES = 4


def drained(writer: DataStreamWriter) -> list[int]:
    """Run a query until it has read all; how many rows each of its batches had."""
    return [one.numInputRows for one in progress_of(writer)]


def progress_of(writer: DataStreamWriter) -> list[StreamingQueryProgress]:
    """Run a query until it has read all; the progress of each batch with rows."""
    return _begun_again(writer, lambda query: query.processAllAvailable())


def available_now(writer: DataStreamWriter) -> list[int]:
    """Run a query with `availableNow` to its end; how many rows each of its batches had."""

    def end(query: StreamingQuery) -> None:
        assert query.awaitTermination(ENDS_WITHIN_S)

    done = _begun_again(writer.trigger(availableNow=True), end)
    return [one.numInputRows for one in done]


def _begun_again(
    writer: DataStreamWriter, run: Callable[[StreamingQuery], None]
) -> list[StreamingQueryProgress]:
    from pyspark.errors import StreamingQueryException

    for tries_left in reversed(range(TRIES)):
        began = time.monotonic()
        query = writer.start()
        try:
            run(query)
            return [one for one in query.recentProgress if one.numInputRows]
        except StreamingQueryException as error:
            was_late = "worker failed to connect back" in str(error)
            if (
                not was_late
                or time.monotonic() - began < WORKER_CONNECTS_WITHIN_S
                or not tries_left
            ):
                raise
        finally:
            query.stop()
    raise AssertionError
