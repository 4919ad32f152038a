"""DescribeTopicPartitions (key 75): topics and their partitions, page by page (KIP-966).

Behaviour: topics in the order of their names, each once; a request without names asks for all. A
page has at most the requested number of partitions, at least 1 and at most 2000. It ends with a
cursor if more follows: the first topic and partition of the next page. In a request for all topics,
a cursor's topic that no longer exists is skipped. In a request for some, the cursor must name one
of them, or it is INVALID_REQUEST. A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, an
invalid name INVALID_TOPIC_EXCEPTION. A leader that clients cannot reach is -1, and a replica that
they cannot reach, or whose log has failed, is offline.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.metadata.brokers.visible import visible_brokers, visible_partition
from tidelog.broker.metadata.names import check_topic_name
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.broker.security.authorizer import NOT_ASKED
from tidelog.broker.settings import is_internal
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.protocol.errors import InvalidRequest, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.api.services import Services
    from tidelog.broker.metadata.brokers.visible import VisibleBroker
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest
    from tidelog.protocol.errors import BrokerError

_MOST = 2_000


async def handle(
    services: Services, request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    """Describes one page, after reading leader epochs from closed logs."""
    names, begin = _from_cursor(services, request)
    left = max(1, min(_MOST, request.response_partition_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    for name in names:
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = services.metadata.image.topics.get(name)
        if topic is None or not _may_describe(services, context, name):
            if request.topics:
                why = partial(_raise_why_not, services, context)
                topics += await per_partition(
                    services, "describe_topic_partitions", [name], why, _failed
                )
            continue
        indexes = range(begin, topic.partitions)[:left]
        begin = 0
        await _read_epochs(services, topic, indexes)
        topics.append(_describe(services, context, topic, indexes))
        left -= len(indexes)
        if indexes and indexes[-1] + 1 < topic.partitions:
            next_cursor = Cursor(topic_name=name, partition_index=indexes[-1] + 1)
            break
    for described in topics:
        assert described.name is not None
        described.topic_authorized_operations = services.authorizer.operations(
            context.session, ResourceType.TOPIC, described.name
        )
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _from_cursor(
    services: Services, request: DescribeTopicPartitionsRequest
) -> tuple[list[str], int]:
    """Returns the topics from the cursor on, and the first partition of the first of them."""
    asked = {topic.name for topic in request.topics} or services.metadata.image.topics.keys()
    cursor = request.cursor
    if cursor is None:
        return sorted(asked), 0
    if cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor's partition is {cursor.partition_index}")
    if request.topics and cursor.topic_name not in asked:
        raise InvalidRequest(f"the cursor's topic {cursor.topic_name!r} is not among those named")
    names = sorted(name for name in asked if name >= cursor.topic_name)
    is_there = names[:1] == [cursor.topic_name]
    return names, cursor.partition_index if is_there else 0


async def _read_epochs(services: Services, topic: Topic, indexes: range) -> None:
    """Reads the leader epochs that are only in closed logs."""
    unread = services.replicas.unread_epochs(topic, indexes)
    if unread:
        await services.pools.reads.run(services.store.read_leader_epochs, unread)


def _describe(
    services: Services, context: Context, topic: Topic, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    """Describes some partitions of a topic."""
    reachable = visible_brokers(services.metadata.image, context.connection.listener.name)
    one = partial(_describe_one, services, reachable, topic)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[one(index) for index in indexes],
    )


def _describe_one(
    services: Services, reachable: Mapping[int, VisibleBroker], topic: Topic, index: int
) -> DescribeTopicPartitionsResponsePartition:
    """Describes a partition."""
    record = topic.assignments[index]
    seen = visible_partition(services.metadata.image, reachable, topic, index)
    has_nobody = not record.isr and not record.elr and record.last_leader != NO_LEADER
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=seen.leader,
        leader_epoch=services.replicas.leader_epoch(topic, index),
        replica_nodes=list(record.replicas),
        isr_nodes=list(record.isr),
        eligible_leader_replicas=list(record.elr),
        last_known_elr=[record.last_leader] if has_nobody else [],
        offline_replicas=seen.offline,
    )


def _may_describe(services: Services, context: Context, name: str) -> bool:
    return services.authorizer.allows(context.session, Operation.DESCRIBE, ResourceType.TOPIC, name)


def _raise_why_not(
    services: Services, context: Context, name: str
) -> DescribeTopicPartitionsResponseTopic:
    """Raises the error of a topic that is not described: a missing right, or no such topic."""
    services.authorizer.require(context.session, Operation.DESCRIBE, ResourceType.TOPIC, name)
    check_topic_name(name)
    raise UnknownTopicOrPartition


def _failed(name: str, error: BrokerError) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code,
        name=name,
        partitions=[],
        topic_authorized_operations=NOT_ASKED,
    )


async def refuse(
    request: DescribeTopicPartitionsRequest, error: BrokerError
) -> DescribeTopicPartitionsResponse:
    """Returns the error for every topic."""
    return DescribeTopicPartitionsResponse(
        topics=await listed(_failed(topic.name, error) for topic in request.topics)
    )
