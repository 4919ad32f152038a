"""ElectLeaders (key 43): elect the preferred, or any, replica as leader (KIP-183, KIP-460).

v1 the type of election, an error at the top; v2 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Message, String, since


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: String = since(0)
    partitions: list[Int32] = since(0)


class ElectLeadersRequest(Message):
    """Elect the leaders of these partitions; null means all."""

    election_type: Int8 = since(1)
    topic_partitions: list[TopicPartitions] | None = since(0)
    timeout_ms: Int32 = since(0, default=60000)


class PartitionResult(Message):
    """The result for one partition."""

    partition_id: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


class ReplicaElectionResult(Message):
    """The results for one topic."""

    topic: String = since(0)
    partition_result: list[PartitionResult] = since(0)


class ElectLeadersResponse(Message):
    """The result for every partition."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(1, ignorable=True)
    replica_election_results: list[ReplicaElectionResult] = since(0)


API = Api(
    key=43,
    name="ElectLeaders",
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    min_version=0,
    max_version=2,
    first_flexible=2,
    served=(0, 2),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    request_bytes=4 << 20,
)
