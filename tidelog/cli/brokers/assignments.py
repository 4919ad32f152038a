"""Which brokers have which replicas, and how commands move them: over Kafka's protocol."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidelog.cli.connecting import sentence_of
from tidelog.cli.shared import CommandError
from tidelog.client.calls import reassignments
from tidelog.client.calls import topics as topic_calls
from tidelog.protocol.error_codes import ErrorCode
from tidelog.text import first_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.cli.cluster import Cluster
    from tidelog.protocol.topic_partition import TopicPartition

CORDONED = "cordoned.brokers"
_AT_ONCE = 100  # partitions in one request


def metadata(cluster: Cluster) -> Any:
    """Returns the Metadata answer for all topics. Raises CommandError."""
    return cluster.perform(topic_calls.describe(None))


def racks_of(answer: Any) -> dict[int, str | None]:
    """Returns the brokers that are up in a Metadata answer, with their racks."""
    return {each.node_id: each.rack for each in answer.brokers}


def replicas_of(answer: Any) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas of each partition in a Metadata answer, the preferred leader first."""
    return {
        (topic.name, partition.partition_index): tuple(partition.replica_nodes)
        for topic in answer.topics
        for partition in topic.partitions
    }


def counts_of(answer: Any) -> Counter[int]:
    """Returns how many replicas each broker has in a Metadata answer."""
    return Counter(broker for replicas in replicas_of(answer).values() for broker in replicas)


def cordoned(cluster: Cluster) -> frozenset[int]:
    """Returns the brokers that are closed to new replicas. Raises CommandError."""
    (entry,) = cluster.settings(None, [CORDONED])
    return frozenset(int(broker) for broker in (entry.value or "").split(",") if broker.strip())


def begin_moves(cluster: Cluster, moves: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Asks for moves of partitions. Raises CommandError if one is refused.

    A partition whose topic was deleted meanwhile has nothing to move.
    """
    places = list(moves)
    for start in range(0, len(places), _AT_ONCE):
        part = {place: moves[place] for place in places[start : start + _AT_ONCE]}
        refused = cluster.perform(reassignments.reassign(part))
        for (topic, index), error in refused.items():
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise CommandError(f"{topic}-{index} is not moved: {sentence_of(error)}")


def named(places: Sequence[TopicPartition]) -> str:
    """Returns the first of some partitions, as text."""
    return first_of([f"{topic}-{index}" for topic, index in places])
