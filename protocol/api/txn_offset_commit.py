"""TxnOffsetCommit (key 28): commit offsets of a group with a transaction (KIP-98).

v2 leader epochs (KIP-320); v3 flexible, the member and its generation (KIP-447); v4 same bytes, new
error codes; v5 same bytes, adds the group to the transaction (KIP-890).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class TxnOffsetCommitRequestPartition(Message):
    """The offset of the next record to read, with the client's metadata."""

    partition_index: Int32 = since(0)
    committed_offset: Int64 = since(0)
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: String | None = since(0, default=None)


class TxnOffsetCommitRequestTopic(Message):
    """The offsets of one topic."""

    name: String = since(0)
    partitions: list[TxnOffsetCommitRequestPartition] = since(0)


class TxnOffsetCommitRequest(Message):
    """Offsets that are committed if the transaction is, by a member of the group if one is named."""

    transactional_id: String = since(0)
    group_id: String = since(0)
    producer_id: Int64 = since(0)
    producer_epoch: Int16 = since(0)
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = since(0)


class TxnOffsetCommitResponsePartition(Message):
    """The result for one offset."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)


class TxnOffsetCommitResponseTopic(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[TxnOffsetCommitResponsePartition] = since(0)


class TxnOffsetCommitResponse(Message):
    """The result for every offset."""

    throttle_time_ms: Int32 = since(0)
    topics: list[TxnOffsetCommitResponseTopic] = since(0)


API = Api(
    key=28,
    name="TxnOffsetCommit",
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
    min_version=0,
    max_version=5,
    first_flexible=3,
    served=(0, 5),
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.READ, ResourceType.GROUP),
        Need(Operation.READ, ResourceType.TOPIC),
    ),
    request_bytes=8 << 20,
)
