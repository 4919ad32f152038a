"""DeleteTopics (key 20): remove topics and their logs.

Behaviour: by name, or by id from version 6 on; each for itself. Partitions and files are gone when the
answer leaves. One that is named twice, by name or by id, stays: INVALID_REQUEST, told once, as with Kafka.
delete.topic.enable=false answers TOPIC_DELETION_DISABLED.

Version notes: 1 throttle time; 4 flexible; 5 error message; 6 topic ids.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition_async
from protocol.acl import Operation, ResourceType
from protocol.api.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from protocol.errors import InvalidRequest, TopicDeletionDisabled, UnknownTopicId

if TYPE_CHECKING:
    from uuid import UUID

    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.delete_topics import DeleteTopicsRequest
    from protocol.errors import BrokerError

_TOPIC_IDS_SINCE = 6


async def handle(
    node: Node, request: DeleteTopicsRequest, context: Context
) -> DeleteTopicsResponse:
    """Delete every topic named, each for itself."""
    asked = _wanted(request, context.version)
    times = Counter(_topic(node, wanted) for wanted in asked)

    async def delete(wanted: DeleteTopicState) -> DeletableTopicResult:
        if not node.config.delete_topic_enable:
            raise TopicDeletionDisabled
        if times[_topic(node, wanted)] > 1:
            raise InvalidRequest("the topic is named more than once")
        if (wanted.name is None) == (wanted.topic_id.int == 0):
            raise InvalidRequest("give the name or the id, one of them")
        name = node.topic_name(wanted.topic_id) if wanted.name is None else wanted.name
        if not node.authorizer.allows_on_cluster(context.session, Operation.DELETE):
            node.authorizer.require(context.session, Operation.DELETE, ResourceType.TOPIC, name)
        topic = await node.topics.delete(name)
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)

    once = {(each.name, each.topic_id): each for each in asked}.values()
    return DeleteTopicsResponse(
        responses=await per_partition_async(node, "delete_topics", once, delete, _failed)
    )


def _wanted(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= _TOPIC_IDS_SINCE:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def _topic(node: Node, wanted: DeleteTopicState) -> str | UUID:
    """What stands for the topic, however it is named: its name, or an id that is nobody's."""
    if wanted.name is not None:
        return wanted.name
    try:
        return node.topic_name(wanted.topic_id)
    except UnknownTopicId:
        return wanted.topic_id


def _failed(wanted: DeleteTopicState, error: BrokerError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name,
        topic_id=wanted.topic_id,
        error_code=error.code,
        error_message=error.message,
    )


def refuse(request: DeleteTopicsRequest, error: BrokerError) -> DeleteTopicsResponse:
    """Every topic gets the error."""
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[_failed(topic, error) for topic in wanted])
