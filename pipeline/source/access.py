"""One interface to log directories and clusters: plan the splits of a selection, and read a split.

It knows which module plans and reads which source: `logs` or `brokers`. These are imported when
they are needed, because a worker needs only one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.source.reading import ReadOptions, read_file
from tidelog.pipeline.source.splits import NotThere, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.source.columns import Columns
    from tidelog.pipeline.source.splits import OffsetRange, Selection, Split
    from tidelog.protocol.topic_partition import TopicPartition


def plan(
    selection: Selection,
    *,
    logs: Sequence[str] = (),
    brokers: str | None = None,
) -> list[Split]:
    """Cuts the selection into splits, from log directories (see `locations`) or a cluster.

    Raises SourceError, and OSError or the client's errors if something cannot be reached.
    """
    if bool(logs) == (brokers is not None):
        raise SourceError("give either log directories or brokers to read from")
    if brokers is not None:
        from tidelog.pipeline.source import brokers as cluster

        return cluster.plan(selection, brokers)
    from tidelog.pipeline.source import logs as directories

    return directories.plan(selection, logs)


def ranges(
    selection: Selection,
    *,
    logs: Sequence[str] = (),
    brokers: str | None = None,
) -> dict[TopicPartition, OffsetRange]:
    """Returns start and end of the wanted partitions now, at any event time. Raises as `plan`."""
    if bool(logs) == (brokers is not None):
        raise SourceError("give either log directories or brokers to read from")
    if brokers is not None:
        from tidelog.pipeline.source import brokers as cluster

        return cluster.ranges(selection, brokers)
    from tidelog.pipeline.source import logs as directories

    return directories.ranges(selection, logs)


def identified(
    selection: Selection,
    *,
    logs: Sequence[str] = (),
    brokers: str | None = None,
) -> tuple[dict[TopicPartition, OffsetRange], dict[str, str]]:
    """Returns `ranges`, and the ids of their topics as far as they are known. Raises as `plan`."""
    if brokers is not None:
        from tidelog.pipeline.source import brokers as cluster

        return cluster.identified(selection, brokers)
    from tidelog.pipeline.source import logs as directories

    return directories.ranges(selection, logs), directories.topic_ids(selection, logs)


def refuse_none(selection: Selection, logs: Sequence[str]) -> None:
    """Raises NotThere if log directories have no partition of the selection."""
    if not ranges(selection, logs=logs):
        wanted = "" if selection.pattern is None else f" of topics {selection.pattern}"
        raise NotThere(f"no logs{wanted} in {', '.join(logs)}")


def read(split: Split, options: ReadOptions | None = None) -> Iterator[Columns]:
    """Reads a split.

    Raises SourceError if it is corrupt or gone, OSError and the client's errors.
    """
    options = options or ReadOptions()
    if split.part is not None:
        return read_file(split, split.part, options)
    from tidelog.pipeline.source import brokers

    return brokers.read(split, options)
