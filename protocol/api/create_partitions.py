"""CreatePartitions (key 37): add partitions to existing topics (KIP-195).

v1 the same as v0; v2 flexible; v3 the same as v2.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Message, String, since


class CreatePartitionsAssignment(Message):
    """The brokers that will hold one new partition."""

    broker_ids: list[Int32] = since(0)


class CreatePartitionsTopic(Message):
    """One topic and its new number of partitions."""

    name: String = since(0)
    count: Int32 = since(0)
    assignments: list[CreatePartitionsAssignment] | None = since(0)


class CreatePartitionsRequest(Message):
    """Add partitions to these topics."""

    topics: list[CreatePartitionsTopic] = since(0)
    timeout_ms: Int32 = since(0)
    validate_only: Bool = since(0)


class CreatePartitionsTopicResult(Message):
    """The result for one topic."""

    name: String = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


class CreatePartitionsResponse(Message):
    """The result for every topic."""

    throttle_time_ms: Int32 = since(0)
    results: list[CreatePartitionsTopicResult] = since(0)


API = Api(
    key=37,
    name="CreatePartitions",
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    min_version=0,
    max_version=3,
    first_flexible=2,
    served=(0, 3),
    needs=(Need(Operation.ALTER, ResourceType.TOPIC),),
    request_bytes=4 << 20,
)
