"""Calls about consumer groups: their members and committed offsets. Refusals raise RequestError."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import apis
from tidelog.client.cluster import GROUP
from tidelog.client.errors import PartitionRefused, raise_for_code
from tidelog.client.flow import AnyBroker, Call, CoordinatorTarget, Node
from tidelog.protocol.api import (
    delete_groups,
    describe_groups,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.protocol.topic_partition import TopicPartition


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
CONSUMER: Final = "consumer"  # the protocol type whose assignments `assigned_partitions` can parse


class GroupOffset(NamedTuple):
    """A committed offset, the next that the group will read, and the metadata of its client."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ListedGroup(NamedTuple):
    """A group in a broker's list; the state is empty if an old broker does not report it."""

    name: str
    protocol_type: str
    state: str


def coordinator(group: str) -> Call[int]:
    """Returns the id of the broker that coordinates a group."""

    def read(answer: Any) -> int:
        raise_for_code(answer.error_code, f"coordinator of group {group}", answer.error_message)
        return int(answer.node_id)

    request = find_coordinator.FindCoordinatorRequest(key=group, key_type=GROUP)
    return Call(apis.FIND_COORDINATOR, request, AnyBroker(), read)


def fetch_offsets(group: str) -> Call[dict[TopicPartition, GroupOffset]]:
    """Every committed offset of a group; an empty dict if there is none."""
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None)

    def read(answer: Any) -> dict[TopicPartition, GroupOffset]:
        raise_for_code(answer.error_code, f"offsets of group {group}")
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                raise_for_code(one.error_code, f"offset of group {group}")
                found[topic.name, one.partition_index] = GroupOffset(
                    one.committed_offset, one.metadata or "", one.committed_leader_epoch
                )
        return found

    return Call(apis.OFFSET_FETCH, request, CoordinatorTarget(GROUP, group), read)


def commit_offsets(group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> Call[None]:
    """Commits offsets from outside the group.

    The broker refuses them with UNKNOWN_MEMBER_ID while the group has members.
    """
    by_topic: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
    for (topic, partition), one in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=one.offset,
                committed_metadata=one.metadata,
            )
        )
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )

    def read(answer: Any) -> None:
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    place = (topic.name, one.partition_index)
                    raise PartitionRefused(one.error_code, f"group {group}, committing", place)

    return Call(apis.OFFSET_COMMIT, request, CoordinatorTarget(GROUP, group), read)


def delete_offsets(group: str, partitions: Iterable[TopicPartition]) -> Call[None]:
    """Deletes the committed offsets of a group in these partitions."""
    by_topic: dict[str, list[offset_delete.OffsetDeleteRequestPartition]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(
            offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
        )
    request = offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(name=name, partitions=each)
            for name, each in by_topic.items()
        ],
    )

    def read(answer: Any) -> None:
        raise_for_code(answer.error_code, group)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    place = (topic.name, one.partition_index)
                    raise PartitionRefused(one.error_code, f"group {group}, deleting", place)

    return Call(apis.OFFSET_DELETE, request, CoordinatorTarget(GROUP, group), read)


def delete(group: str) -> Call[None]:
    """Deletes a group and its committed offsets."""
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])

    def read(answer: Any) -> None:
        (one,) = answer.results
        raise_for_code(one.error_code, f"deleting group {group}")

    return Call(apis.DELETE_GROUPS, request, CoordinatorTarget(GROUP, group), read)


def list_on(node_id: int) -> Call[list[ListedGroup]]:
    """The groups that one broker coordinates."""

    def read(answer: Any) -> list[ListedGroup]:
        raise_for_code(answer.error_code, f"groups of broker {node_id}")
        return [
            ListedGroup(one.group_id, one.protocol_type, one.group_state) for one in answer.groups
        ]

    return Call(apis.LIST_GROUPS, list_groups.ListGroupsRequest(), Node(node_id), read)


def describe(group: str) -> Call[Any]:
    """The `DescribedGroup` of a group: its state and members. A missing group is Dead."""

    def read(answer: Any) -> Any:
        (one,) = answer.groups
        raise_for_code(one.error_code, group)
        return one

    request = describe_groups.DescribeGroupsRequest(groups=[group])
    return Call(apis.DESCRIBE_GROUPS, request, CoordinatorTarget(GROUP, group), read)


def assigned_partitions(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """Returns the partitions in a consumer's assignment. Raises ValueError for invalid bytes."""
    if not data:
        return ()
    buffer = bytes(data)
    try:
        return tuple(sorted(_assigned(buffer)))
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no consumer's assignment: {error}") from None


def _assigned(data: bytes) -> Iterable[TopicPartition]:
    """Parses a version, then an array of (topic, array of partitions); the rest is not needed."""
    position = 2
    (topics,) = _INT32.unpack_from(data, position)
    position += 4
    for _ in range(topics):
        (size,) = _INT16.unpack_from(data, position)
        position += 2
        name = data[position : position + size]
        if size < 0 or len(name) < size:
            raise ValueError("no consumer's assignment: a topic is cut short")
        position += size
        (count,) = _INT32.unpack_from(data, position)
        position += 4
        for number in struct.unpack_from(f">{max(count, 0)}i", data, position):
            yield name.decode(), number
        position += 4 * max(count, 0)
