"""ListPartitionReassignments (key 46): the partitions that are being reassigned (KIP-455).

Flexible in its only version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class ListPartitionReassignmentsTopics(Message):
    """Partitions of one topic."""

    name: String = since(0)
    partition_indexes: list[Int32] = since(0)


class ListPartitionReassignmentsRequest(Message):
    """Ask which of these partitions are being reassigned; null means all partitions."""

    timeout_ms: Int32 = since(0, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = since(0, default=None)


class OngoingPartitionReassignment(Message):
    """One partition that is being reassigned."""

    partition_index: Int32 = since(0)
    replicas: list[Int32] = since(0)
    adding_replicas: list[Int32] = since(0)
    removing_replicas: list[Int32] = since(0)


class OngoingTopicReassignment(Message):
    """The partitions of one topic."""

    name: String = since(0)
    partitions: list[OngoingPartitionReassignment] = since(0)


class ListPartitionReassignmentsResponse(Message):
    """Every partition that is being reassigned."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    topics: list[OngoingTopicReassignment] = since(0)


API = Api(
    key=46,
    name="ListPartitionReassignments",
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    request_bytes=4 << 20,
)
