"""OffsetCommit (key 8): store the committed offsets of a group.

v1 member and generation, a time for each partition; v2 one retention time instead; v3 throttle
time; v5 no retention time (KIP-211); v6 leader epochs (KIP-320); v7 static members (KIP-345); v8
flexible; v9 same bytes, new error codes (KIP-848).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class OffsetCommitRequestPartition(Message):
    """The offset of the next record to read, with the client's metadata."""

    partition_index: Int32 = since(0)
    committed_offset: Int64 = since(0)
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    commit_timestamp: Int64 = since(1, until=1, default=NO_TIMESTAMP, ignorable=True)
    committed_metadata: String | None = since(0, default=None)


class OffsetCommitRequestTopic(Message):
    """The offsets of one topic."""

    name: String = since(0)
    partitions: list[OffsetCommitRequestPartition] = since(0)


class OffsetCommitRequest(Message):
    """Commit these offsets; generation -1 and no member id mean that the client is no member."""

    group_id: String = since(0)
    generation_id_or_member_epoch: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = since(1, ignorable=True)
    group_instance_id: String | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = since(0)


class OffsetCommitResponsePartition(Message):
    """The result for one offset."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)


class OffsetCommitResponseTopic(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[OffsetCommitResponsePartition] = since(0)


class OffsetCommitResponse(Message):
    """The result for every offset."""

    throttle_time_ms: Int32 = since(3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = since(0)


API = Api(
    key=8,
    name="OffsetCommit",
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    min_version=0,
    max_version=9,
    first_flexible=8,
    served=(0, 9),
    needs=(
        Need(Operation.READ, ResourceType.GROUP),
        Need(Operation.READ, ResourceType.TOPIC),
    ),
    request_bytes=8 << 20,
)
