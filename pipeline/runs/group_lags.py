"""Measures how far groups are behind in time: by both times of the first record each has not read.

The record is read from the log directories if there are any, else from the cluster; no time is
interpolated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tidelog.client import Client
from tidelog.pipeline.source import access, reading
from tidelog.pipeline.source import splits as source
from tidelog.storage.time.timestamp import or_none

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.engine.audit import Example
    from tidelog.pipeline.source.splits import OffsetRange
    from tidelog.protocol.topic_partition import TopicPartition


def lags(
    cluster: str,
    groups: Sequence[str],
    ends: Mapping[TopicPartition, OffsetRange],
    newest: Mapping[TopicPartition, Example | None],
    logs: Sequence[str] | None,
    upto: Literal["high-watermark", "log-end"],
    now_ms: int,
) -> list[dict[str, Any]]:
    """Returns a row for each group and each partition with a committed offset of it.

    A group that is not known has no rows. Records that retention has deleted do not count: the lag
    then begins at the log start.
    """
    found = []
    with Client(cluster) as client:
        committed = {group: client.offset_fetch(group) for group in groups}
    for group, offsets in committed.items():
        for key, one in sorted(offsets.items()):
            if key not in ends or one.offset < 0:
                continue
            start, end = ends[key]
            offset = min(max(one.offset, start), end)
            event = append = None
            if offset < end:
                event, append = _times_at(key, offset, end, cluster, logs, upto)
            found.append(_row(group, key, one.offset, end, event, append, newest.get(key), now_ms))
    return found


def _row(
    group: str,
    key: TopicPartition,
    offset: int,
    end: int,
    event: int | None,
    append: int | None,
    newest: Example | None,
    now_ms: int,
) -> dict[str, Any]:
    return {
        "group": group,
        "topic": key[0],
        "partition": key[1],
        "committed_offset": offset,
        "end_offset": end,
        "records": max(end - offset, 0),
        "event_time_ms": event,
        "append_time_ms": append,
        "event_lag_ms": None if event is None else max(now_ms - event, 0),
        "append_lag_ms": None if append is None else max(now_ms - append, 0),
        "event_behind_ms": (
            None if event is None or newest is None else max(newest.timestamp_ms - event, 0)
        ),
    }


def _times_at(
    key: TopicPartition,
    offset: int,
    end: int,
    cluster: str,
    logs: Sequence[str] | None,
    upto: Literal["high-watermark", "log-end"],
) -> tuple[int | None, int | None]:
    """Returns both times of the first record at or after an offset; None for an unknown time."""
    selection = source.Selection(
        topics=(key[0],), offsets={key: (offset, end)}, allow_gone=True, upto=upto
    )
    splits = access.plan(selection, logs=logs or (), brokers=None if logs else cluster)
    for split in splits:
        options = reading.ReadOptions.of(selection, reading.TIMES, batch_bytes=1)
        for columns in access.read(split, options):
            if len(columns):
                append = int(columns.append_time_ms[0])
                return (
                    or_none(int(columns.timestamp_ms[0])),
                    None if append == reading.UNKNOWN else append,
                )
    return None, None
