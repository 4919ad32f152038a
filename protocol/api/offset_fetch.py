"""OffsetFetch (key 9): the committed offsets of a group.

v2 null asks for every topic, an error of the whole group; v3 throttle time; v5 leader epochs
(KIP-320); v6 flexible; v7 only stable offsets, which no open transaction may change (KIP-447); v8
several groups in one request (KIP-709); v9 member id and epoch (KIP-848).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class OffsetFetchRequestTopic(Message):
    """Partitions of one topic (to v7)."""

    name: String = since(0, until=7)
    partition_indexes: list[Int32] = since(0, until=7)


class OffsetFetchRequestTopics(Message):
    """Partitions of one topic, for one of the groups."""

    name: String = since(8)
    partition_indexes: list[Int32] = since(8)


class OffsetFetchRequestGroup(Message):
    """One group; null topics mean all for which it has offsets."""

    group_id: String = since(8)
    member_id: String | None = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = since(8)


class OffsetFetchRequest(Message):
    """Ask for the offsets of one group (to v7), or of several (from v8)."""

    group_id: String = since(0, until=7)
    topics: list[OffsetFetchRequestTopic] | None = since(0, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: Bool = since(7)


class OffsetFetchResponsePartition(Message):
    """One offset; -1 if there is none (to v7)."""

    partition_index: Int32 = since(0, until=7)
    committed_offset: Int64 = since(0, until=7)
    committed_leader_epoch: Int32 = since(5, until=7, default=-1, ignorable=True)
    metadata: String | None = since(0, until=7, default=None)
    error_code: Int16 = since(0, until=7)


class OffsetFetchResponseTopic(Message):
    """The offsets of one topic (to v7)."""

    name: String = since(0, until=7)
    partitions: list[OffsetFetchResponsePartition] = since(0, until=7)


class OffsetFetchResponsePartitions(Message):
    """One offset of one of the groups; -1 if there is none."""

    partition_index: Int32 = since(8)
    committed_offset: Int64 = since(8)
    committed_leader_epoch: Int32 = since(8, default=-1, ignorable=True)
    metadata: String | None = since(8, default=None)
    error_code: Int16 = since(8)


class OffsetFetchResponseTopics(Message):
    """The offsets of one topic, for one of the groups."""

    name: String = since(8)
    partitions: list[OffsetFetchResponsePartitions] = since(8)


class OffsetFetchResponseGroup(Message):
    """The offsets of one group."""

    group_id: String = since(8)
    topics: list[OffsetFetchResponseTopics] = since(8)
    error_code: Int16 = since(8)


class OffsetFetchResponse(Message):
    """The offsets of one group (to v7), or of several (from v8)."""

    throttle_time_ms: Int32 = since(3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = since(0, until=7)
    error_code: Int16 = since(2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = since(8)


API = Api(
    key=9,
    name="OffsetFetch",
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    min_version=0,
    max_version=9,
    first_flexible=6,
    served=(0, 9),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.GROUP),
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
    request_bytes=4 << 20,
)
