"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496).

Behaviour: of an empty group, any offset can be deleted; the group is deleted with its last offset.
Of a group of consumers, offsets of topics that no member subscribes to can be deleted; others are
GROUP_SUBSCRIBED_TO_TOPIC (all, if a member's subscription cannot be decoded). Any other group is
NON_EMPTY_GROUP, and a missing one GROUP_ID_NOT_FOUND. A partition that does not exist is
UNKNOWN_TOPIC_OR_PARTITION; one that is named twice has one result. As in Kafka, the members count as they
are when the offsets are deleted, after everything else was checked.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups import offset_commits
from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.network.per_partition import few_partitions, per_partition
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
    from collections.abc import Callable

    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
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
    _topics_in_use(entry)  # a group that is refused is refused whatever the request names
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
        _check(services, name)
        going.append(name)

    def failed(name: TopicPartition, error: BrokerError) -> None:
        codes[name] = error.code

    await per_partition(services, "offset_delete", asked, accept, failed)
    at_once = offset_commits.AT_ONCE
    for at in range(0, len(going), at_once):
        await _delete_unused(services, request.group_id, going[at : at + at_once], failed)
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


async def _delete_unused(
    services: Services,
    group_id: str,
    names: list[TopicPartition],
    failed: Callable[[TopicPartition, BrokerError], None],
) -> None:
    """Deletes the offsets of topics that no member reads, and passes the others to `failed`."""
    entry = services.coordinator.get(group_id)
    if entry is None or entry.group.state is State.DEAD:  # its offsets go, too
        return
    in_use = _topics_in_use(entry)
    unused: list[TopicPartition] = []

    def accept(name: TopicPartition) -> None:
        if in_use is None or name[0] in in_use:
            raise GroupSubscribedToTopic(f"members read {name[0]}")
        unused.append(name)

    few_partitions(services, "offset_delete", names, accept, failed)
    await services.coordinator.offsets.delete(group_id, unused)


def _topics_in_use(entry: GroupMetadata) -> set[str] | None:
    """Returns the topics that the members of a group read; None if that is unknown.

    Raises NonEmptyGroup for members that are no consumers.
    """
    if entry.group.state is State.EMPTY:
        return set()
    if not entry.is_of_consumers:
        raise NonEmptyGroup(f"group {entry.key} has members")
    return entry.topics_in_use()


def _check(services: Services, name: TopicPartition) -> None:
    topic = services.metadata.image.topics.get(name[0])
    if topic is None or not 0 <= name[1] < topic.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {name[0]}-{name[1]}")


def refuse(_request: OffsetDeleteRequest, error: BrokerError) -> OffsetDeleteResponse:
    """Returns the error of the whole request."""
    return OffsetDeleteResponse(error_code=error.code, topics=[])
