"""The lag of a group: in records, and in time by the first unread record, exact to the ms.

Offsets and the first unread record come over Kafka's protocol, with its append time if the broker is a
tidelog (Apache Kafka knows none). "Now" is the broker's clock if its HTTP port answers, else this
machine's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.connecting import raised_as_sentences
from tidelog.cli.shared import instants
from tidelog.client import EARLIEST, LATEST
from tidelog.client.consumer import Consumer
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.cli.cluster import Cluster
    from tidelog.client import GroupOffset
    from tidelog.protocol.topic_partition import TopicPartition

_POLL_MS = 200
_SILENT_S = 30.0
_FETCH_BYTES = 64 * 1024  # of each partition: its first batch of any size, and little more


class Unread(NamedTuple):
    """The first unread record; None stands for a record without a time, or an unknown time."""

    offset: int
    timestamp_ms: int | None
    append_time_ms: int | None


class Lag(NamedTuple):
    """The lag of a group in one partition. None: nothing is committed there, or it is unknown."""

    place: TopicPartition
    committed: int | None
    start: int | None
    end: int | None
    records: int | None
    first: Unread | None
    event_ms: int | None
    append_ms: int | None
    unknown: Mapping[str, str]  # which of "event" and "append" is None, and why
    catch_up_ms: int | None = None  # the estimated time to catch up; None: not at this rate


_Times = Unread | str | None  # a text: why they are unknown; None: there is no unread record


def measure(
    cluster: Cluster,
    http: str,
    committed: Mapping[TopicPartition, GroupOffset],
    also: Iterable[TopicPartition] = (),
) -> list[Lag]:
    """Returns the lag of partitions with committed offsets, and of `also`. Raises CommandError."""
    places = sorted({*committed, *also})
    starts, ends = _ends(cluster, places)
    firsts = {
        place: max(committed[place].offset, starts[place])
        for place in places
        if place in committed and place in starts and ends[place] > committed[place].offset
    }
    firsts = {place: first for place, first in firsts.items() if first < ends[place]}
    times = _fetched(cluster, firsts, ends)
    now_ms = cluster.now_ms(http, next(iter(firsts))[0]) if firsts else 0
    lags = []
    for place in places:
        offset = committed[place].offset if place in committed else None
        lag = Lag(place, offset, starts.get(place), ends.get(place), None, None, None, None, {})
        if offset is None:
            lags.append(_unknown(lag, "nothing is committed there"))
        elif place not in ends:
            lags.append(_unknown(lag, "there is no such partition any more"))
        elif place not in firsts:
            lags.append(lag._replace(records=0, event_ms=0, append_ms=0))
        else:
            lag = lag._replace(records=ends[place] - firsts[place])
            lags.append(_with_times(lag, times[place], now_ms))
    return lags


def with_catch_up(before: Iterable[Lag], now: Iterable[Lag], elapsed_ms: int) -> list[Lag]:
    """Returns the lags of now with the time in which they will be 0, if all goes on as it went.

    `before` are the lags `elapsed_ms` earlier. A group catches up by what it commits more than is
    appended.
    """
    earlier = {lag.place: lag for lag in before}
    return [
        lag._replace(catch_up_ms=_catch_up_ms(earlier.get(lag.place), lag, elapsed_ms))
        for lag in now
    ]


def _catch_up_ms(before: Lag | None, now: Lag, elapsed_ms: int) -> int | None:
    if now.records == 0:
        return 0
    if before is None or now.records is None:
        return None
    consumed, appended = _grown(before.committed, now.committed), _grown(before.end, now.end)
    if consumed is None or appended is None or consumed <= appended:
        return None
    return -(-now.records * elapsed_ms // (consumed - appended))


def _grown(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _ends(
    cluster: Cluster, places: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Returns log start and log end of these partitions, without those that are gone."""
    there = {(topic.name, each.number) for topic in cluster.topics() for each in topic.partitions}
    known = [place for place in places if place in there]
    return cluster.offsets(known, EARLIEST), cluster.offsets(known, LATEST)


def _unknown(lag: Lag, why: str) -> Lag:
    return lag._replace(unknown={"event": why, "append": why})


def _with_times(lag: Lag, times: _Times, now_ms: int) -> Lag:
    """Returns the lag with the times of the first unread record."""
    if times is None:  # control records, or records that compaction has removed
        return lag._replace(event_ms=0, append_ms=0)
    if isinstance(times, str):
        return _unknown(lag, times)
    unknown = {}
    if times.timestamp_ms is None:
        unknown["event"] = "the first unread record has no time"
    if times.append_time_ms is None:
        unknown["append"] = "the append time of the first unread record is unknown"
    return lag._replace(
        first=times,
        event_ms=_lag_ms(times.timestamp_ms, now_ms),
        append_ms=_lag_ms(times.append_time_ms, now_ms),
        unknown=unknown,
    )


def _lag_ms(time_ms: int | None, now_ms: int) -> int | None:
    """Returns the clock minus a time; 0 if the time is ahead, as after a step back of the clock."""
    return None if time_ms is None else max(now_ms - time_ms, 0)


# --- the times of the first unread record ---------------------------------------------------------


def _fetched(
    cluster: Cluster, firsts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, _Times]:
    """Returns the times of the first records at or after these offsets. Raises CommandError."""
    found: dict[TopicPartition, _Times] = {}
    consumer = Consumer(
        cluster.client, firsts, partition_max_bytes=_FETCH_BYTES, with_append_times=True
    )
    until = time.monotonic() + _SILENT_S
    while consumer.positions and time.monotonic() < until:
        with raised_as_sentences():
            polled = consumer.poll(_POLL_MS)
        for place, read in polled.items():
            time_ms = read.timestamps[0]
            found[place] = Unread(
                read.offsets[0],
                None if time_ms == NO_TIMESTAMP else time_ms,
                read.append_times[0],
            )
            consumer.stop(place)
        for place, position in list(consumer.positions.items()):
            if position >= ends[place]:
                found[place] = None
                consumer.stop(place)
        if polled:
            until = time.monotonic() + _SILENT_S
    for place in consumer.positions:
        found[place] = f"its records could not be fetched within {_SILENT_S:.0f} s"
    return found


# --- output ---------------------------------------------------------------------------------------


def as_json(lag: Lag) -> dict[str, Any]:
    """Returns a lag as JSON: exact, each time in two forms."""
    to_iso = instants().to_iso
    first = None
    if lag.first is not None:
        first = {
            "offset": lag.first.offset,
            "timestamp_ms": lag.first.timestamp_ms,
            "timestamp": to_iso(lag.first.timestamp_ms),
            "append_time_ms": lag.first.append_time_ms,
            "append_time": to_iso(lag.first.append_time_ms),
        }
    return {
        "topic": lag.place[0],
        "partition": lag.place[1],
        "committed_offset": lag.committed,
        "log_start_offset": lag.start,
        "end_offset": lag.end,
        "lag_records": lag.records,
        "lag_event_ms": lag.event_ms,
        "lag_append_ms": lag.append_ms,
        "first_unread": first,
        "unknown": dict(lag.unknown),
    }
