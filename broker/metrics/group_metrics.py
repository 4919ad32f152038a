"""Metrics of consumer groups: their lag, in records and in seconds.

A group's lag in a partition begins at the first record that it has not committed, at its committed
offset or later, because transaction markers and records removed by compaction do not count, and not
before the log's start. The lag in seconds is the clock minus the time of that record, which is read
from the log, exact to the millisecond: by append time it says how long the record has been unread,
by event time how old its content is. With nothing unread the lag is 0, and also if the record's
time is ahead of the clock, as it is after a step back of the clock. If the record has no time,
or its append time is unknown, there is no sample. Partitions are opened if necessary; this runs in
a thread.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.group import State
from broker.metrics.family import GAUGE, Family, Scrape
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from broker.groups.store import StoredGroup
    from broker.metrics.family import Samples


class _Lag(NamedTuple):
    """The lag of one group in one partition."""

    labels: tuple[str, str, str]
    records: int
    event_ms: int | None
    append_ms: int | None


def _groups(scrape: Scrape) -> list[StoredGroup]:
    try:
        return scrape.node.coordinator.all()
    except BrokerError:  # the groups are still being read
        return []


def _lags(scrape: Scrape) -> list[_Lag]:
    """Returns the lag of every group in every partition for which it has committed an offset."""
    found = scrape.shared.get(__name__)
    if found is None:
        found = scrape.shared[__name__] = [
            lag
            for kept in _groups(scrape)
            for (topic, index), committed in list(kept.offsets.items())
            if (lag := _lag(scrape, kept.group.group_id, topic, index, committed.offset))
        ]
    assert isinstance(found, list)
    return found


def _lag(scrape: Scrape, group: str, topic: str, index: int, committed: int) -> _Lag | None:
    try:
        partition = scrape.node.partition(topic, index)
        first = max(committed, partition.log_start_offset)
        count = max(partition.high_watermark - first, 0)
        if not count:
            return _Lag((group, topic, str(index)), 0, 0, 0)
        record = partition.reader.first_record(first)
    except BrokerError:  # gone meanwhile, or its disk has failed: its own metrics say so
        return None
    if record is None:  # only transaction markers are left, or compaction removed the rest
        return _Lag((group, topic, str(index)), count, 0, 0)
    _, event_time, append_time, _ = record[1]
    now_ms = scrape.now_ms
    return _Lag(
        (group, topic, str(index)),
        count,
        None if event_time is None else max(now_ms - event_time, 0),
        None if append_time is None else max(now_ms - append_time, 0),
    )


def _lag_records(scrape: Scrape) -> Samples:
    for lag in _lags(scrape):
        yield lag.labels, lag.records


def _lag_seconds(scrape: Scrape) -> Samples:
    for lag in _lags(scrape):
        for by, lag_ms in (("event", lag.event_ms), ("append", lag.append_ms)):
            if lag_ms is not None:
                yield (*lag.labels, by), lag_ms / 1000


def _states(scrape: Scrape) -> Samples:
    counts = Counter(kept.group.state for kept in _groups(scrape))
    for state in State:
        yield (state.value,), counts[state]


def _members(scrape: Scrape) -> Samples:
    for kept in _groups(scrape):
        yield (kept.group.group_id,), len(kept.group.members)


_PARTITION = ("group", "topic", "partition")

FAMILIES = (
    Family("tidelog_groups", GAUGE, "Consumer groups, by state", ("state",), _states),
    Family("tidelog_group_members", GAUGE, "Members of a consumer group", ("group",), _members),
    Family(
        "tidelog_group_lag_records",
        GAUGE,
        "Offsets from the committed one, or the log's start, to the high watermark",
        _PARTITION,
        _lag_records,
    ),
    Family(
        "tidelog_group_lag_seconds",
        GAUGE,
        "Clock minus the time of the oldest record that is not committed, exact, by event or append time; "
        "0 if there is none, missing where that record has no such time",
        (*_PARTITION, "by"),
        _lag_seconds,
    ),
)
