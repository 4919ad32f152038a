"""Metrics of consumer groups: how far behind they are, in records and in time.

A group's lag in a partition begins at the first record it has not committed: at its committed offset or
behind it, for marks of transactions and what compaction has removed are no records, and not before the
log's start. Its lag in seconds is the clock minus that record's time, read from the log, exact to the
millisecond: by append time how long it has lain there unread, by event time how old what it tells is.
Nothing unread: 0. Where that record has no time, or its append time is not known, there is no such sample.
The partitions concerned are opened if need be; this runs in a thread.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.group import State
from broker.metrics.family import GAUGE, Buckets, Family, Scrape
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.groups.store import Kept
    from broker.metrics.family import Labels

    Samples = Iterator[tuple[Labels, float | Buckets]]


class _Lag(NamedTuple):
    """One group's in one partition."""

    labels: tuple[str, str, str]
    records: int
    event_ms: int | None
    append_ms: int | None


def _groups(scrape: Scrape) -> list[Kept]:
    try:
        return scrape.node.coordinator.all()
    except BrokerError:  # they are still being read
        return []


def _lags(scrape: Scrape) -> list[_Lag]:
    """Every group's in every partition it has committed an offset of."""
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
        record = partition.first_record(first)
    except BrokerError:  # gone meanwhile, or its disk has failed: its own metrics say so
        return None
    if record is None:  # marks of transactions, or what compaction has removed
        return _Lag((group, topic, str(index)), count, 0, 0)
    _, event_time, append_time, _ = record[1]
    now_ms = scrape.now_ms
    return _Lag(
        (group, topic, str(index)),
        count,
        None if event_time is None else now_ms - event_time,
        None if append_time is None else now_ms - append_time,
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
