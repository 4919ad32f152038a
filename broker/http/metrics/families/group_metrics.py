"""Metrics of consumer groups: their lag, in records and in seconds.

A group's lag in a partition begins at the first record that it has not committed, at its committed
offset or later, because transaction markers and records removed by compaction do not count, and not
before the log's start. The lag in seconds is the clock minus the time of that record, which is read
from the log, exact to the millisecond: by append time the lag is how long the record has been unread,
by event time how old its content is. With nothing unread the lag is 0, and also if the record's
time is ahead of the clock, as it is after a step back of the clock. If the record has no time,
or its append time is unknown, there is no sample. Partitions are opened if necessary; this runs in
a thread.

Clients choose how many groups there are. The first `MOST_GROUPS` of them have labels of their own. All others
have one label: the sum of their members, and for each partition the largest of their lags.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.http.metrics.family import GAUGE, Family, Scrape
from tidelog.broker.metrics.counters import OTHER
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.broker.http.metrics.family import Samples

MOST_GROUPS: Final = 1_000


class GroupLag(NamedTuple):
    """The lag of one group in one partition."""

    labels: tuple[str, str, str]
    records: int
    event_ms: int | None
    append_ms: int | None


def _groups(scrape: Scrape) -> list[GroupMetadata]:
    try:
        return scrape.services.coordinator.runtime.all()
    except BrokerError:  # the groups are still being read
        return []


def lags(scrape: Scrape) -> list[GroupLag]:
    """Returns the lag of every group in every partition for which it has committed an offset."""
    found = scrape.shared.get(__name__)
    if found is None:
        groups = iter(_groups(scrape))
        found = list(_lags_of(scrape, islice(groups, MOST_GROUPS)))
        others: dict[tuple[str, str, str], GroupLag] = {}
        for lag in _lags_of(scrape, groups):
            labels = (OTHER, lag.labels[1], lag.labels[2])
            others[labels] = _largest(labels, lag, others.get(labels, lag))
        found += others.values()
        scrape.shared[__name__] = found
    assert isinstance(found, list)
    return found


def _lags_of(scrape: Scrape, groups: Iterator[GroupMetadata]) -> Iterator[GroupLag]:
    for entry in groups:
        for (topic, index), committed in dict(entry.offsets).items():
            lag = _lag(scrape, entry.group.group_id, topic, index, committed.offset)
            if lag is not None:
                yield lag


def _largest(labels: tuple[str, str, str], one: GroupLag, other: GroupLag) -> GroupLag:
    event = [lag.event_ms for lag in (one, other) if lag.event_ms is not None]
    append = [lag.append_ms for lag in (one, other) if lag.append_ms is not None]
    return GroupLag(
        labels,
        max(one.records, other.records),
        max(event, default=None),
        max(append, default=None),
    )


def _lag(scrape: Scrape, group: str, topic: str, index: int, committed: int) -> GroupLag | None:
    try:
        partition = scrape.services.partitions.get(topic, index)
        first = max(committed, partition.log_start_offset)
        count = max(partition.high_watermark - first, 0)
        if not count:
            return GroupLag((group, topic, str(index)), 0, 0, 0)
        record = partition.reader.first_record(first)
    except BrokerError:  # deleted meanwhile, or its disk has failed, which other metrics show
        return None
    if record is None:  # only transaction markers are left, or compaction removed the rest
        return GroupLag((group, topic, str(index)), count, 0, 0)
    _, event_time, append_time, _ = record[1]
    now_ms = scrape.now_ms
    return GroupLag(
        (group, topic, str(index)),
        count,
        None if event_time is None else max(now_ms - event_time, 0),
        None if append_time is None else max(now_ms - append_time, 0),
    )


def _lag_records(scrape: Scrape) -> Samples:
    for lag in lags(scrape):
        yield lag.labels, lag.records


def _lag_seconds(scrape: Scrape) -> Samples:
    for lag in lags(scrape):
        for by, lag_ms in (("event", lag.event_ms), ("append", lag.append_ms)):
            if lag_ms is not None:
                yield (*lag.labels, by), lag_ms / 1000


def _states(scrape: Scrape) -> Samples:
    counts = Counter(entry.group.state for entry in _groups(scrape))
    for state in State:
        yield (state.value,), counts[state]


def members(scrape: Scrape) -> Samples:
    """Yields the members of each group that has a label of its own, and the sum of the others."""
    groups = iter(_groups(scrape))
    for entry in islice(groups, MOST_GROUPS):
        yield (entry.group.group_id,), len(entry.group.members)
    others = [len(entry.group.members) for entry in groups]
    if others:
        yield (OTHER,), sum(others)


def _bytes(scrape: Scrape) -> Samples:
    yield (), scrape.services.coordinator.groups.held.counted


_PARTITION = ("group", "topic", "partition")

FAMILIES = (
    Family("tidelog_groups", GAUGE, "Consumer groups, by state", ("state",), _states),
    Family(
        "tidelog_groups_bytes",
        GAUGE,
        "Bytes that the groups which this broker coordinates take, as max.groups.bytes counts them",
        (),
        _bytes,
    ),
    Family("tidelog_group_members", GAUGE, "Members of a consumer group", ("group",), members),
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
