"""DescribeProducers (key 61): the idempotent producers with state in partitions (KIP-664).

Flexible in its only version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class TopicRequest(Message):
    """Partitions of one topic."""

    name: String = since(0)
    partition_indexes: list[Int32] = since(0)


class DescribeProducersRequest(Message):
    """Ask for the producers of these partitions."""

    topics: list[TopicRequest] = since(0)


class ProducerState(Message):
    """One producer in one partition; `last_timestamp` in ms."""

    producer_id: Int64 = since(0)
    producer_epoch: Int32 = since(0)
    last_sequence: Int32 = since(0, default=-1)
    last_timestamp: Int64 = since(0, default=NO_TIMESTAMP)
    coordinator_epoch: Int32 = since(0)
    current_txn_start_offset: Int64 = since(0, default=-1)


class PartitionResponse(Message):
    """The producers of one partition."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    active_producers: list[ProducerState] = since(0)


class TopicResponse(Message):
    """The partitions of one topic."""

    name: String = since(0)
    partitions: list[PartitionResponse] = since(0)


class DescribeProducersResponse(Message):
    """The producers of every requested partition."""

    throttle_time_ms: Int32 = since(0)
    topics: list[TopicResponse] = since(0)


API = Api(
    key=61,
    name="DescribeProducers",
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.READ, ResourceType.TOPIC),),
)
