"""CreatePartitions (key 37): add partitions to existing topics (KIP-195).

Behaviour: each topic succeeds or fails on its own. The count is the topic's new total number of
partitions; one that is not larger than the current number is INVALID_PARTITIONS. An assignment names
registered brokers for each new partition, as many as the topic has replicas, one of which must be able
to lead, or it is INVALID_REPLICA_ASSIGNMENT. More partitions than
max.partitions in the cluster are POLICY_VIOLATION. A name given twice is INVALID_REQUEST, in one result.
Before the response is sent, the partitions are in the metadata, their logs are on this broker if it
is a replica, and they are visible to its clients.

Version notes: 1 is the same as 0; 2 flexible; 3 is the same as 2 (it would allow a quota to
refuse).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition_async
from broker.network.turns import paced
from broker.topics.partition_counts import grown_count
from protocol.acl import Operation, ResourceType
from protocol.api.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
    from protocol.errors import BrokerError


async def handle(
    node: Node, request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    """Adds partitions to each topic separately."""
    times = Counter(topic.name for topic in paced(request.topics))

    async def grow(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        if times[topic.name] > 1:
            raise InvalidRequest(f"topic {topic.name!r} is named more than once")
        node.authorizer.require(context.session, Operation.ALTER, ResourceType.TOPIC, topic.name)
        await _grow(node, topic, validate_only=request.validate_only)
        return CreatePartitionsTopicResult(name=topic.name)

    once = {topic.name: topic for topic in paced(request.topics)}.values()
    return CreatePartitionsResponse(
        results=await per_partition_async(node, "create_partitions", once, grow, _failed)
    )


async def _grow(node: Node, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    chosen = wanted.assignments
    await node.topics.add_partitions(
        wanted.name,
        partial(grown_count, node.config, wanted),
        None if chosen is None else [assignment.broker_ids for assignment in chosen],
        validate_only=validate_only,
    )


def _failed(wanted: CreatePartitionsTopic, error: BrokerError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=wanted.name, error_code=error.code, error_message=error.message
    )


def refuse(request: CreatePartitionsRequest, error: BrokerError) -> CreatePartitionsResponse:
    """Returns the error for every topic."""
    return CreatePartitionsResponse(results=[_failed(topic, error) for topic in request.topics])
