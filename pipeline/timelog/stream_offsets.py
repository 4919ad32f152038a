"""Offsets of a stream: as Spark's log has them, and how a limit is shared among partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.protocol.topic_partition import TopicPartition

    Offsets = dict[str, dict[str, int]]


def nested(offsets: Mapping[TopicPartition, int]) -> Offsets:
    """Returns offsets as JSON has them."""
    nested: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def flat(offsets: Offsets) -> dict[TopicPartition, int]:
    """Returns the offsets of JSON by topic and partition."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def share(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Distributes `most` offsets over the partitions by their size; at least one advances."""
    left = {key: end - starts[key] for key, end in ends.items() if end > starts[key]}
    total = sum(left.values())
    if total <= most:
        return dict(ends)
    shared, given = dict(starts), 0
    for key, count in left.items():
        part = count * most // total
        shared[key] += part
        given += part
    for key in sorted(left, key=left.__getitem__, reverse=True):
        if given >= most:
            break
        if shared[key] < ends[key]:
            shared[key] += 1
            given += 1
    return shared
