"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496).

Behaviour: of an empty group, any offset can be deleted; the group is deleted with its last offset.
Of a group of consumers, offsets of topics that no member subscribes to can be deleted; others are
GROUP_SUBSCRIBED_TO_TOPIC (all, if a member's subscription cannot be decoded). Any other group is
NON_EMPTY_GROUP, and a missing one GROUP_ID_NOT_FOUND. A partition that does not exist is
UNKNOWN_TOPIC_OR_PARTITION; one that is named twice has one result.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.errors import UnknownTopicOrPartition
from tidelog.protocol.group_errors import GroupIdNotFound, GroupSubscribedToTopic, NonEmptyGroup

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.offset_delete import OffsetDeleteRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition


async def handle(
    services: Services, request: OffsetDeleteRequest, context: Context
) -> OffsetDeleteResponse:
    """Deletes the offsets that are not in use."""
    services.authorizer.require(
        context.session, Operation.DELETE, ResourceType.GROUP, request.group_id
    )
    entry = services.coordinator.get(request.group_id)
    if entry is None or entry.group.state is State.DEAD:
        raise GroupIdNotFound(f"there is no group {request.group_id}")
    in_use: set[str] | None = set()
    if entry.group.state is not State.EMPTY:
        if not entry.is_of_consumers:
            raise NonEmptyGroup(f"group {request.group_id} has members")
        in_use = entry.topics_in_use()
    codes: dict[TopicPartition, int] = {}
    going: list[TopicPartition] = []
    asked = dict.fromkeys(
        await listed(
            (topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        )
    )

    def accept(name: TopicPartition) -> None:
        services.authorizer.require(context.session, Operation.READ, ResourceType.TOPIC, name[0])
        _check(services, name, in_use)
        going.append(name)

    def failed(name: TopicPartition, error: BrokerError) -> None:
        codes[name] = error.code

    await per_partition(services, "offset_delete", asked, accept, failed)
    await services.coordinator.offsets.delete(request.group_id, going)
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for name in asked:
        partition = OffsetDeleteResponsePartition(
            partition_index=name[1], error_code=codes.get(name, 0)
        )
        topics.setdefault(name[0], []).append(partition)
        await checkpoint()
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def _check(services: Services, name: TopicPartition, in_use: set[str] | None) -> None:
    topic = services.metadata.image.topics.get(name[0])
    if topic is None or not 0 <= name[1] < topic.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {name[0]}-{name[1]}")
    if in_use is None or name[0] in in_use:
        raise GroupSubscribedToTopic(f"members read {name[0]}")


def refuse(_request: OffsetDeleteRequest, error: BrokerError) -> OffsetDeleteResponse:
    """Returns the error of the whole request."""
    return OffsetDeleteResponse(error_code=error.code, topics=[])
