"""The parts of a cluster as commands show them: topics, partitions and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.protocol.topic_partition import TopicPartition


class Partition(NamedTuple):
    """A partition; the leader is -1 if it has none."""

    number: int
    leader: int
    has_error: bool


class Topic(NamedTuple):
    """A topic and its partitions, by number."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[Partition]


class Member(NamedTuple):
    """One member of a group; `assigned` is None unless the group's protocol is for consumers."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] | None


class Group(NamedTuple):
    """A group: its state by Kafka's name, its protocol type, and the protocol its members chose."""

    name: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[Member, ...]
