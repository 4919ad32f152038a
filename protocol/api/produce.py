"""Produce (key 0): append records to partitions.

v1 throttle time; v2 log append time in the response (KIP-32); v3 transactional id and format 2
(KIP-98); v5 log start offset in the response; v7 zstd (KIP-110); v8 which record failed, and why
(KIP-467); v9 flexible; v10 the current leader in the response (KIP-951); v11, v12 same bytes, new
transaction rules (KIP-890); v13 topics by id instead of name (KIP-516).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, Records, String, Uuid, since


class PartitionProduceData(Message):
    """Records for one partition."""

    index: Int32 = since(0)
    records: Records | None = since(0)


class TopicProduceData(Message):
    """Records for one topic."""

    name: String = since(0, until=12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partition_data: list[PartitionProduceData] = since(0)


class ProduceRequest(Message):
    """Append these records; acks is 0 (no response), 1 (the leader has them) or -1 (all)."""

    transactional_id: String | None = since(3, default=None)
    acks: Int16 = since(0)
    timeout_ms: Int32 = since(0)
    topic_data: list[TopicProduceData] = since(0)


class BatchIndexAndErrorMessage(Message):
    """Why one record, by its index from 0 in its batch, was refused."""

    batch_index: Int32 = since(8)
    batch_index_error_message: String | None = since(8, default=None)


class LeaderIdAndEpoch(Message):
    """The partition's leader, as far as this broker knows."""

    leader_id: Int32 = since(10, default=-1)
    leader_epoch: Int32 = since(10, default=-1)


class PartitionProduceResponse(Message):
    """The base offset of one partition's records, or the error; for CreateTime the time is -1."""

    index: Int32 = since(0)
    error_code: Int16 = since(0)
    base_offset: Int64 = since(0)
    log_append_time_ms: Int64 = since(2, default=NO_TIMESTAMP, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, ignorable=True)
    error_message: String | None = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = since(10, tag=0)


class TopicProduceResponse(Message):
    """The results for one topic."""

    name: String = since(0, until=12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = since(0)


class NodeEndpoint(Message):
    """The address of a leader that the response names."""

    node_id: Int32 = since(10)
    host: String = since(10)
    port: Int32 = since(10)
    rack: String | None = since(10, default=None)


class ProduceResponse(Message):
    """The result for every requested partition."""

    responses: list[TopicProduceResponse] = since(0)
    throttle_time_ms: Int32 = since(1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0)


API = Api(
    key=0,
    name="Produce",
    request=ProduceRequest,
    response=ProduceResponse,
    min_version=0,
    max_version=13,
    first_flexible=9,
    served=(0, 13),
    needs=(
        Need(Operation.WRITE, ResourceType.TOPIC),
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
    ),
    request_bytes=None,
)
