"""How many partitions a topic may have: the checks of CreateTopics and CreatePartitions.

Counts, replication factors and manual assignments are checked. There is one broker, so each partition
has one replica, on this broker. A count is at most max.partitions.per.topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)

if TYPE_CHECKING:
    from broker.metadata.image import Topic
    from config import BrokerConfig
    from protocol.api.create_partitions import CreatePartitionsTopic
    from protocol.api.create_topics import CreatableTopic


def initial_count(config: BrokerConfig, wanted: CreatableTopic) -> int:
    """Returns the number of partitions of a new topic, from its numbers or its assignments.

    Raises InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidRequest.
    """
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequest("an assignment replaces the numbers: both must be -1")
        indexes = sorted(entry.partition_index for entry in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise InvalidReplicaAssignment("partitions must be numbered from 0 without gaps")
        for entry in wanted.assignments:
            if entry.broker_ids != [config.node_id]:
                raise InvalidReplicaAssignment(
                    f"replicas {entry.broker_ids}: there is one broker, {config.node_id}"
                )
        return len(indexes)
    factor = wanted.replication_factor
    if factor == -1:
        factor = config.default_replication_factor
    if factor != 1:
        raise InvalidReplicationFactor(f"replication factor {factor}: there is one broker")
    partitions = wanted.num_partitions
    if partitions == -1:
        partitions = config.num_partitions
    if not 1 <= partitions <= config.max_partitions_per_topic:
        raise InvalidPartitions(
            f"{partitions} partitions: between 1 and {config.max_partitions_per_topic} are possible"
        )
    return partitions


def grown_count(config: BrokerConfig, topic: Topic, wanted: CreatePartitionsTopic) -> int:
    """Returns the new number of partitions of an existing topic.

    Raises InvalidPartitions and InvalidReplicaAssignment.
    """
    count, limit = wanted.count, config.max_partitions_per_topic
    if count == topic.partitions:
        raise InvalidPartitions(f"topic {topic.name} has {count} partitions already")
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
        for assignment in wanted.assignments:
            if assignment.broker_ids != [config.node_id]:
                raise InvalidReplicaAssignment(
                    f"replicas {assignment.broker_ids}: there is one broker, {config.node_id}"
                )
    return count
