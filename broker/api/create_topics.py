"""CreateTopics (key 19): create topics with their settings.

Behaviour: each topic succeeds or fails on its own, with an error message from version 1 on. -1
partitions or replicas mean the broker's default (num.partitions, default.replication.factor). More
replicas than registered brokers is INVALID_REPLICATION_FACTOR. A manual assignment names registered
brokers, as many for each partition, one of which must be able to lead; any other is
INVALID_REPLICA_ASSIGNMENT. A topic beyond max.topics or max.partitions is POLICY_VIOLATION. Any broker
creates topics, not only the controller; one whose session has ended answers NOT_CONTROLLER for a topic
that needs several transactions. A repeated name is INVALID_REQUEST, in one result, and so is the
name of Kafka's metadata topic. A client that may not describe the topic's settings gets neither them
nor the numbers, but a code.

Version notes: 1 validate only, error message; 4 defaults by -1; 5 flexible, partitions and settings
in the response; 6 a topic is refused with THROTTLING_QUOTA_EXCEEDED while the client is over its
controller_mutation_rate; an older version gets a throttle time (KIP-599); 7 topic id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.controller.topics.partition_counts import initial
from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.broker.settings import check_size
from tidelog.config import topic_entries
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
)

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
    from tidelog.protocol.errors import BrokerError

_STRICT_SINCE = 6
_CLUSTER_METADATA = "__cluster_metadata"


async def handle(
    services: Services, request: CreateTopicsRequest, context: Context
) -> CreateTopicsResponse:
    """Creates each topic separately."""
    is_strict = context.version >= _STRICT_SINCE
    times = Counter(await listed(topic.name for topic in request.topics))

    async def create(topic: CreatableTopic) -> CreatableTopicResult:
        if times[topic.name] > 1:
            raise InvalidRequest(f"topic {topic.name!r} is named more than once")
        if topic.name == _CLUSTER_METADATA:
            raise InvalidRequest(f"{topic.name} is no topic that can be made")
        if not services.authorizer.allows_on_cluster(context.session, Operation.CREATE):
            services.authorizer.require(
                context.session, Operation.CREATE, ResourceType.TOPIC, topic.name
            )
        quota = context.quota
        if quota is not None and is_strict and topic.name not in services.metadata.image.topics:
            quota.check_change()
        created = await _create(services, topic, validate_only=request.validate_only)
        if quota is not None and not request.validate_only:
            quota.changed(created.partitions, is_strict=is_strict)
        return _described(services, context, created)

    once = dict(await listed((topic.name, topic) for topic in request.topics)).values()
    return CreateTopicsResponse(
        topics=await per_partition_async(services, "create_topics", once, create, _failed)
    )


async def _create(services: Services, wanted: CreatableTopic, *, validate_only: bool) -> Topic:
    partitions, factor, assignments = initial(services.config, wanted)
    check_size(wanted.configs)
    configs: dict[str, str] = {}
    for entry in wanted.configs:
        if entry.value is None:
            raise InvalidConfig(f"{entry.name} needs a value")
        configs[entry.name] = entry.value
    return await services.topics.create(
        wanted.name,
        partitions=partitions,
        factor=factor,
        assignments=assignments,
        configs=configs,
        validate_only=validate_only,
    )


def _described(services: Services, context: Context, topic: Topic) -> CreatableTopicResult:
    """Returns the result for a new topic, with settings if the client may describe them (KIP-525)."""
    if not services.authorizer.allows(
        context.session, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
    ):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in topic_entries(
                services.config,
                services.settings.of_topic(topic.name, topic.configs),
                topic.configs,
            )
        ],
    )


def _failed(wanted: CreatableTopic, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=wanted.name, error_code=error.code, error_message=error.message
    )


async def refuse(request: CreateTopicsRequest, error: BrokerError) -> CreateTopicsResponse:
    """Returns the error for every topic."""
    return CreateTopicsResponse(
        topics=await listed(_failed(topic, error) for topic in request.topics)
    )
