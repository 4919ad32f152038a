"""DeleteTopics (key 20): delete topics and their logs.

Behaviour: by name, or from version 6 on by id; each topic succeeds or fails on its own. Partitions
and files are gone before the response is sent. As in Kafka, a topic that is named twice, by name or
by id, is not deleted: INVALID_REQUEST, in one result. With delete.topic.enable=false the error is
TOPIC_DELETION_DISABLED. A client without the right to describe a topic does not get its name for
its id.

Version notes: 1 throttle time; 4 flexible; 5 error message, and a topic is refused with
THROTTLING_QUOTA_EXCEEDED while the client is over its controller_mutation_rate; an older version gets a
throttle time (KIP-599); 6 topic ids.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.errors import (
    InvalidRequest,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownTopicId,
)

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.delete_topics import DeleteTopicsRequest
    from tidelog.protocol.errors import BrokerError

_STRICT_SINCE = 5
_TOPIC_IDS_SINCE = 6


async def handle(
    services: Services, request: DeleteTopicsRequest, context: Context
) -> DeleteTopicsResponse:
    """Deletes each topic separately."""
    asked = await _wanted(request, context.version)
    is_strict = context.version >= _STRICT_SINCE
    times = Counter(await listed(_topic(services, wanted) for wanted in asked))

    async def delete(wanted: DeleteTopicState) -> DeletableTopicResult:
        if not services.config.delete_topic_enable:
            raise TopicDeletionDisabled
        if times[_topic(services, wanted)] > 1:
            raise InvalidRequest("the topic is named more than once")
        if (wanted.name is None) == (wanted.topic_id.int == 0):
            raise InvalidRequest("give the name or the id, one of them")
        name = services.metadata.topic_name(wanted.topic_id) if wanted.name is None else wanted.name
        _require_deletion(services, context, wanted, name)
        quota = context.quota
        if quota is not None and is_strict and name in services.metadata.image.topics:
            quota.check_change()
        topic = await services.topics.delete(name)
        if quota is not None:
            quota.changed(topic.partitions, is_strict=is_strict)
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)

    once: dict[tuple[str | None, UUID], DeleteTopicState] = {}
    for each in asked:
        once[each.name, each.topic_id] = each
        await checkpoint()
    return DeleteTopicsResponse(
        responses=await per_partition_async(
            services, "delete_topics", once.values(), delete, _failed
        )
    )


def _require_deletion(
    services: Services, context: Context, wanted: DeleteTopicState, name: str
) -> None:
    """Raises TopicAuthorizationFailed unless the client may delete the topic.

    By id the client must also have the right to describe the topic; else the error has no name.
    """
    authorizer, session = services.authorizer, context.session
    if authorizer.allows_on_cluster(session, Operation.DELETE):
        return
    if wanted.name is None and not authorizer.allows(
        session, Operation.DESCRIBE, ResourceType.TOPIC, name
    ):
        raise TopicAuthorizationFailed(
            f"{session.principal} has no right to DESCRIBE on the topic with id {wanted.topic_id}"
        )
    authorizer.require(session, Operation.DELETE, ResourceType.TOPIC, name)


async def _wanted(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= _TOPIC_IDS_SINCE:
        return request.topics
    return await listed(DeleteTopicState(name=name) for name in request.topic_names)


def _topic(services: Services, wanted: DeleteTopicState) -> str | UUID:
    """Returns the name of the topic, also if the request has its id, or an unknown id."""
    if wanted.name is not None:
        return wanted.name
    try:
        return services.metadata.topic_name(wanted.topic_id)
    except UnknownTopicId:
        return wanted.topic_id


def _failed(wanted: DeleteTopicState, error: BrokerError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name,
        topic_id=wanted.topic_id,
        error_code=error.code,
        error_message=error.message,
    )


async def refuse(request: DeleteTopicsRequest, error: BrokerError) -> DeleteTopicsResponse:
    """Returns the error for every topic."""
    wanted = request.topics or await listed(
        DeleteTopicState(name=name) for name in request.topic_names
    )
    return DeleteTopicsResponse(responses=await listed(_failed(topic, error) for topic in wanted))
