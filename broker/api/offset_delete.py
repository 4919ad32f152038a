"""OffsetDelete (key 47): forget offsets of a group (KIP-496).

Behaviour: of an empty group any; of a stable group of consumers those of topics that no member reads,
GROUP_SUBSCRIBED_TO_TOPIC for the others; of any other group NON_EMPTY_GROUP, and of one that is not there
GROUP_ID_NOT_FOUND. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups import State
from protocol.api.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.errors import (
    BrokerError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from broker.context import Context
    from broker.group_store import Name
    from broker.node import Node
    from protocol.api.offset_delete import OffsetDeleteRequest


async def handle(
    node: Node, request: OffsetDeleteRequest, _context: Context
) -> OffsetDeleteResponse:
    """Delete what nobody uses."""
    kept = node.coordinator.find(request.group_id)
    if kept is None or kept.group.state is State.DEAD:
        raise GroupIdNotFound(f"there is no group {request.group_id}")
    in_use: set[str] = set()
    if kept.group.state is not State.EMPTY:
        known = kept.topics_in_use()
        if known is None:
            raise NonEmptyGroup(f"group {request.group_id} has members")
        in_use = known
    codes: dict[Name, int] = {}
    going: list[Name] = []
    for topic in request.topics:
        for partition in topic.partitions:
            name = (topic.name, partition.partition_index)
            try:
                _check(node, name, in_use)
            except BrokerError as error:
                codes[name] = error.code
            else:
                going.append(name)
    await node.coordinator.forget_offsets(request.group_id, going)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get((topic.name, partition.partition_index), 0),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check(node: Node, name: Name, in_use: set[str]) -> None:
    topic = node.metadata.image.topics.get(name[0])
    if topic is None or not 0 <= name[1] < topic.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {name[0]}-{name[1]}")
    if name[0] in in_use:
        raise GroupSubscribedToTopic(f"members read {name[0]}")


def refuse(_request: OffsetDeleteRequest, error: BrokerError) -> OffsetDeleteResponse:
    """The error of them all."""
    return OffsetDeleteResponse(error_code=error.code, topics=[])
