"""Fetch requests that name a partition more than once: the last mention counts, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic


def name_each_once(request: FetchRequest, *, by_id: bool) -> None:
    """Keeps one mention of each partition: the last one, at the position of the first."""
    topics = request.topics
    keys: list[Any] = [topic.topic_id if by_id else topic.topic for topic in topics]
    if len(set(keys)) == len(keys) and not any(map(_names_twice, topics)):
        return
    wanted: dict[tuple[Any, int], FetchPartition] = {}
    for key, topic in zip(keys, topics, strict=True):
        for partition in topic.partitions:
            wanted[key, partition.partition] = partition
    kept = []
    for key, topic in zip(keys, topics, strict=True):
        indexes = dict.fromkeys(each.partition for each in topic.partitions)
        found = [wanted.pop((key, i)) for i in indexes if (key, i) in wanted]
        if found or not topic.partitions:
            topic.partitions = found
            kept.append(topic)
    request.topics = kept


def _names_twice(topic: FetchTopic) -> bool:
    partitions = topic.partitions
    return len(partitions) > 1 and len({each.partition for each in partitions}) < len(partitions)
