"""Which committed offsets have expired (offsets.retention.minutes), as in Kafka since KIP-211.

The coordinator checks at intervals (offsets.retention.check.interval.ms), and the runtime then
deletes what has expired. When the clock is corrected, times by the clock are corrected too.
Nothing here waits or reads a clock; times are in ms since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.messages import State
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.trusted_clock import corrected_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.time.trusted_clock import Change

_SLICE = 500  # offsets; correcting them takes a few milliseconds


def expired_offsets(
    entry: GroupMetadata, names: Iterable[TopicPartition], now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Returns which of these offsets of a group have expired.

    The retention time counts from when an empty group became empty, and from the commit if the
    group never had members, or if a stable group of consumers no longer reads the topic. Offsets of
    other groups do not expire. An offset that was committed with a retention time of its own uses
    that. While a transaction has sent a newer one, an offset does not expire.
    """
    group = entry.group
    in_use = entry.topics_in_use() if group.state is State.STABLE else None
    is_empty = group.state is State.EMPTY
    found = []
    for name in names:
        committed = entry.offsets.get(name)
        if committed is None:
            continue
        if not is_empty and (in_use is None or name[0] in in_use):
            continue
        base_ms = committed.commit_ms
        if is_empty and group.protocol_type is not None:
            base_ms = max(base_ms, entry.since_ms)
        due_ms = committed.expire_ms
        if due_ms == NO_TIMESTAMP:
            due_ms = base_ms + retention_ms
        if due_ms <= now_ms and name not in entry.pending_offsets:
            found.append(name)
    return found


def correct_times(entry: GroupMetadata, change: Change) -> Iterator[None]:
    """Corrects the times of a group by a wrong clock: since when it is empty, and times of commits.

    Yields after some hundreds of offsets, so that an event loop can do other work between.
    """
    entry.since_ms = corrected_time(change, entry.since_ms)
    entry.pending_offsets.correct(change)
    for done, name in enumerate(list(entry.offsets), 1):
        committed = entry.offsets.get(name)
        if committed is not None:
            corrected = committed.corrected(change)
            if corrected is not committed:
                entry.offsets[name] = corrected
        if not done % _SLICE:
            yield
