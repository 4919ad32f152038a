"""DescribeTopicPartitions (key 75): topics page by page (KIP-966).

Flexible in its only version. A null cursor is one byte, like every null struct.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Message, String, Uuid, since


class TopicRequest(Message):
    """One topic."""

    name: String = since(0)


class Cursor(Message):
    """The start of a page."""

    topic_name: String = since(0)
    partition_index: Int32 = since(0)


class DescribeTopicPartitionsRequest(Message):
    """Describe topics, with at most the given number of partitions."""

    topics: list[TopicRequest] = since(0)
    response_partition_limit: Int32 = since(0, default=2000)
    cursor: Cursor | None = since(0, default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    """One partition, its leader and its replicas."""

    error_code: Int16 = since(0)
    partition_index: Int32 = since(0)
    leader_id: Int32 = since(0)
    leader_epoch: Int32 = since(0, default=-1, ignorable=True)
    replica_nodes: list[Int32] = since(0)
    isr_nodes: list[Int32] = since(0)
    eligible_leader_replicas: list[Int32] | None = since(0, default=None)
    last_known_elr: list[Int32] | None = since(0, default=None)
    offline_replicas: list[Int32] = since(0, ignorable=True)


class DescribeTopicPartitionsResponseTopic(Message):
    """One topic and its partitions on this page."""

    error_code: Int16 = since(0)
    name: String | None = since(0, default=None)
    topic_id: Uuid = since(0, ignorable=True)
    is_internal: Bool = since(0, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = since(0)
    topic_authorized_operations: Int32 = since(0, default=-(2**31))


class DescribeTopicPartitionsResponse(Message):
    """One page, and the start of the next."""

    throttle_time_ms: Int32 = since(0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = since(0)
    next_cursor: Cursor | None = since(0, default=None)


API = Api(
    key=75,
    name="DescribeTopicPartitions",
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.DESCRIBE, ResourceType.TOPIC),),
    request_bytes=4 << 20,
)
