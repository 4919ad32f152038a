"""ListOffsets (key 2): the offset for a time.

v0 a list of segment offsets for a time; v1 one offset and its record time instead (KIP-79); v2
isolation level, throttle time; v4 leader epochs (KIP-320); v6 flexible; v7 the largest timestamp,
-3 (KIP-734); v8 the local log start, -4 (KIP-405); v9 the latest tiered offset, -5 (KIP-1005); v10
a timeout (KIP-1075); v11 the earliest offset awaiting upload, -6 (KIP-1023).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Int64, Message, String, since


class ListOffsetsPartition(Message):
    """The time to look up in one partition; negative numbers are sentinels."""

    partition_index: Int32 = since(0)
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64 = since(0)
    max_num_offsets: Int32 = since(0, until=0, default=1)


class ListOffsetsTopic(Message):
    """The lookups in one topic."""

    name: String = since(0)
    partitions: list[ListOffsetsPartition] = since(0)


class ListOffsetsRequest(Message):
    """Look up these times; replica_id is -1 for a consumer."""

    replica_id: Int32 = since(0)
    isolation_level: Int8 = since(2)
    topics: list[ListOffsetsTopic] = since(0)
    timeout_ms: Int32 = since(10, ignorable=True)


class ListOffsetsPartitionResponse(Message):
    """The offset and its record time; both are -1 if there is none."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)
    old_style_offsets: list[Int64] = since(0, until=0)
    timestamp: Int64 = since(1, default=NO_TIMESTAMP)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1, ignorable=True)


class ListOffsetsTopicResponse(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[ListOffsetsPartitionResponse] = since(0)


class ListOffsetsResponse(Message):
    """The result of every lookup."""

    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = since(0)


API = Api(
    key=2,
    name="ListOffsets",
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    min_version=0,
    max_version=11,
    first_flexible=6,
    served=(0, 11),
    needs=(Need(Operation.DESCRIBE, ResourceType.TOPIC),),
    request_bytes=4 << 20,
)
