"""DescribeQuorum (key 55): the replicas of the log in which KRaft keeps metadata (KIP-595).

v1 when a replica fetched, and when it was caught up (KIP-836); v2 error messages, the directories of
replicas, and the addresses of the nodes (KIP-853). Flexible in every version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, Uint16, Uuid, since


class PartitionData(Message):
    """A partition to describe, in a request; a description, in a response."""

    partition_index: Int32 = since(0)


class TopicData(Message):
    """The partitions of one topic."""

    topic_name: String = since(0)
    partitions: list[PartitionData] = since(0)


class DescribeQuorumRequest(Message):
    """Describe the quorums of these partitions."""

    topics: list[TopicData] = since(0)


class ReplicaState(Message):
    """How far one replica is; a time of -1 is unknown."""

    replica_id: Int32 = since(0)
    replica_directory_id: Uuid = since(2)
    log_end_offset: Int64 = since(0)
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


class DescribedPartition(Message):
    """The quorum of one partition."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(2, default=None, ignorable=True)
    leader_id: Int32 = since(0)
    leader_epoch: Int32 = since(0)
    high_watermark: Int64 = since(0)
    current_voters: list[ReplicaState] = since(0)
    observers: list[ReplicaState] = since(0)


class DescribedTopic(Message):
    """The quorums of one topic's partitions."""

    topic_name: String = since(0)
    partitions: list[DescribedPartition] = since(0)


class Listener(Message):
    """An address of a node."""

    name: String = since(2)
    host: String = since(2)
    port: Uint16 = since(2)


class Node(Message):
    """A node of the quorum."""

    node_id: Int32 = since(2)
    listeners: list[Listener] = since(2)


class DescribeQuorumResponse(Message):
    """The quorums, or the error of the whole request."""

    error_code: Int16 = since(0)
    error_message: String | None = since(2, default=None, ignorable=True)
    topics: list[DescribedTopic] = since(0)
    nodes: list[Node] = since(2)


API = Api(
    key=55,
    name="DescribeQuorum",
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    min_version=0,
    max_version=2,
    first_flexible=0,
    served=(0, 2),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
)
