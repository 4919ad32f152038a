"""Which committed offsets have expired (offsets.retention.minutes), as in Kafka since KIP-211.

The coordinator asks at intervals (offsets.retention.check.interval.ms), and the registry then
deletes what has expired. Nothing here waits or reads a clock; times are in ms since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.group import State
from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from broker.groups.store import StoredGroup
    from protocol.topic_partition import TopicPartition


def expired_offsets(kept: StoredGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Returns the offsets of a group that have expired.

    The retention time counts from when an empty group became empty, and from the commit if the
    group never had members, or if a stable group of consumers no longer reads the topic. Offsets of
    other groups do not expire. An offset that was committed with a retention time of its own uses
    that.
    """
    group = kept.group
    in_use = kept.topics_in_use() if group.state is State.STABLE else None
    is_empty = group.state is State.EMPTY
    found = []
    for name, committed in kept.offsets.items():
        if not is_empty and (in_use is None or name[0] in in_use):
            continue
        base_ms = committed.commit_ms
        if is_empty and group.protocol_type is not None:
            base_ms = max(base_ms, kept.since_ms)
        due_ms = committed.expire_ms
        if due_ms == NO_TIMESTAMP:
            due_ms = base_ms + retention_ms
        if due_ms <= now_ms:
            found.append(name)
    return found
