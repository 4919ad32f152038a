"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455).

Flexible in its only version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class ReassignablePartition(Message):
    """One partition and its new replicas; null cancels the reassignment."""

    partition_index: Int32 = since(0)
    replicas: list[Int32] | None = since(0, default=None)


class ReassignableTopic(Message):
    """The partitions of one topic."""

    name: String = since(0)
    partitions: list[ReassignablePartition] = since(0)


class AlterPartitionReassignmentsRequest(Message):
    """Reassign these partitions."""

    timeout_ms: Int32 = since(0, default=60000)
    topics: list[ReassignableTopic] = since(0)


class ReassignablePartitionResponse(Message):
    """The result for one partition."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


class ReassignableTopicResponse(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[ReassignablePartitionResponse] = since(0)


class AlterPartitionReassignmentsResponse(Message):
    """The result for every partition."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    responses: list[ReassignableTopicResponse] = since(0)


API = Api(
    key=45,
    name="AlterPartitionReassignments",
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    request_bytes=4 << 20,
    request_elements=100_000,
)
