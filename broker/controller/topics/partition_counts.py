"""Limits the numbers of topics and partitions: the checks of CreateTopics and CreatePartitions.

Counts, replication factors and manual assignments are checked. Which brokers can be replicas is checked
where partitions are placed (`placing.py`). A count is at most max.partitions.per.topic. All topics together
are limited by max.topics and max.partitions; brokers that create topics at the same moment may exceed these
by as many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.settings import is_internal
from tidelog.protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
)

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.config import BrokerConfig
    from tidelog.protocol.api.create_partitions import CreatePartitionsTopic
    from tidelog.protocol.api.create_topics import CreatableTopic


class RequestedPartitions(NamedTuple):
    """The partitions of a new topic as a request asks for them.

    `assignments` are the replicas of each partition, if the request names them; then there is one
    for each partition, and `factor` is ignored.
    """

    partitions: int
    factor: int = 1
    assignments: tuple[tuple[int, ...], ...] = ()


def initial(config: BrokerConfig, wanted: CreatableTopic) -> RequestedPartitions:
    """Returns the partitions of a new topic, from its numbers or its assignments.

    Raises InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidRequest.
    """
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequest("an assignment replaces the numbers: both must be -1")
        if len(wanted.assignments) > config.max_partitions_per_topic:
            raise InvalidPartitions(
                f"{len(wanted.assignments)} partitions: between 1 and "
                f"{config.max_partitions_per_topic} are possible"
            )
        by_index = sorted(wanted.assignments, key=lambda entry: entry.partition_index)
        if [entry.partition_index for entry in by_index] != list(range(len(by_index))):
            raise InvalidReplicaAssignment("partitions must be numbered from 0 without gaps")
        assignments = tuple(tuple(entry.broker_ids) for entry in by_index)
        return RequestedPartitions(len(assignments), assignments=assignments)
    factor = wanted.replication_factor
    if factor == -1:
        factor = config.default_replication_factor
    if factor < 1:
        raise InvalidReplicationFactor(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    partitions = wanted.num_partitions
    if partitions == -1:
        partitions = config.num_partitions
    if not 1 <= partitions <= config.max_partitions_per_topic:
        raise InvalidPartitions(
            f"{partitions} partitions: between 1 and {config.max_partitions_per_topic} are possible"
        )
    return RequestedPartitions(partitions, factor)


def grown_count(config: BrokerConfig, wanted: CreatePartitionsTopic, topic: Topic) -> int:
    """Returns the new number of partitions of an existing topic.

    Raises InvalidPartitions and InvalidReplicaAssignment.
    """
    count, limit = wanted.count, config.max_partitions_per_topic
    if count == topic.partitions:
        noun = "partition" if count == 1 else "partitions"
        raise InvalidPartitions(f"topic {topic.name} has {count} {noun} already")
    if count < topic.partitions:
        raise InvalidPartitions(
            f"topic {topic.name} has {topic.partitions} partitions, and {count} would be fewer"
        )
    if count > limit:
        raise InvalidPartitions(f"{count} partitions: at most {limit} are possible")
    if wanted.assignments is not None:
        added = count - topic.partitions
        if len(wanted.assignments) != added:
            raise InvalidReplicaAssignment(
                f"{added} partitions are to be added, and {len(wanted.assignments)} are assigned"
            )
    return count


def check_room(config: BrokerConfig, image: Image, name: str, added: int) -> None:
    """Checks that `added` partitions of a topic, which may be new, stay within max.topics and max.partitions.

    Internal topics are not limited: no group or transaction could work without them. Raises
    PolicyViolation.
    """
    if is_internal(name):
        return
    topics = image.topics
    if name not in topics and len(topics) >= config.limits.max_topics:
        raise PolicyViolation(f"the cluster has max.topics={config.limits.max_topics} topics")
    present = sum(len(topic.assignments) for topic in topics.values())
    if present + added > config.limits.max_partitions:
        raise PolicyViolation(
            f"the cluster has {present} partitions, and {added} more would exceed "
            f"max.partitions={config.limits.max_partitions}"
        )
