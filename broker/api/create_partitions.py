"""CreatePartitions (key 37): add partitions to existing topics (KIP-195).

Behaviour: each topic succeeds or fails on its own. The count is the topic's new total number of
partitions; one that is not larger than the current number is INVALID_PARTITIONS. An assignment names
registered brokers for each new partition, as many as the topic has replicas, one of which must be able
to lead, or it is INVALID_REPLICA_ASSIGNMENT. More partitions than
max.partitions in the cluster are POLICY_VIOLATION. A repeated name is INVALID_REQUEST, in one result.
Before the response is sent, the partitions are in the metadata, their logs are on this broker if it
is a replica, and they are visible to its clients.

Version notes: 1 is the same as 0; 2 flexible; 3 a topic is refused with THROTTLING_QUOTA_EXCEEDED
while the client is over its controller_mutation_rate; an older version gets a throttle time (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.controller.topics.partition_counts import grown_count
from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from tidelog.protocol.errors import BrokerError


_STRICT_SINCE = 3


async def handle(
    services: Services, request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    """Adds partitions to each topic separately."""
    is_strict = context.version >= _STRICT_SINCE
    times = Counter(await listed(topic.name for topic in request.topics))

    async def grow(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        if times[topic.name] > 1:
            raise InvalidRequest(f"topic {topic.name!r} is named more than once")
        services.authorizer.require(
            context.session, Operation.ALTER, ResourceType.TOPIC, topic.name
        )
        quota, before = context.quota, services.metadata.image.topics.get(topic.name)
        if quota is not None and is_strict and before is not None:
            quota.check_change()
        await _grow(services, topic, validate_only=request.validate_only)
        if quota is not None and before is not None and not request.validate_only:
            quota.changed(topic.count - before.partitions, is_strict=is_strict)
        return CreatePartitionsTopicResult(name=topic.name)

    once = dict(await listed((topic.name, topic) for topic in request.topics)).values()
    return CreatePartitionsResponse(
        results=await per_partition_async(services, "create_partitions", once, grow, _failed)
    )


async def _grow(services: Services, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    chosen = wanted.assignments
    await services.topics.add_partitions(
        wanted.name,
        partial(grown_count, services.config, wanted),
        None if chosen is None else [assignment.broker_ids for assignment in chosen],
        validate_only=validate_only,
    )


def _failed(wanted: CreatePartitionsTopic, error: BrokerError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=wanted.name, error_code=error.code, error_message=error.message
    )


async def refuse(request: CreatePartitionsRequest, error: BrokerError) -> CreatePartitionsResponse:
    """Returns the error for every topic."""
    return CreatePartitionsResponse(
        results=await listed(_failed(topic, error) for topic in request.topics)
    )
