"""OffsetForLeaderEpoch (key 23): where a leader's epoch ends (KIP-101, KIP-320).

v1 the epoch that was found is told; v2 the present epoch of the client, throttle time; v3
replica id; v4 flexible.
"""

from __future__ import annotations

from protocol.acl import Need, Operation, ResourceType
from protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class OffsetForLeaderPartition(Message):
    """The epoch to look up in one partition."""

    partition: Int32 = since(0)
    current_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    leader_epoch: Int32 = since(0)


class OffsetForLeaderTopic(Message):
    """The lookups in one topic."""

    topic: String = since(0)
    partitions: list[OffsetForLeaderPartition] = since(0)


class OffsetForLeaderEpochRequest(Message):
    """Ask where these epochs end."""

    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = since(0)


class EpochEndOffset(Message):
    """The largest epoch not above the one asked, and the offset after its last record; -1 unknown."""

    error_code: Int16 = since(0)
    partition: Int32 = since(0)
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = since(0, default=-1)


class OffsetForLeaderTopicResult(Message):
    """The answers for one topic."""

    topic: String = since(0)
    partitions: list[EpochEndOffset] = since(0)


class OffsetForLeaderEpochResponse(Message):
    """The answer to every lookup."""

    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = since(0)


API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    min_version=0,
    max_version=4,
    first_flexible=4,
    served=(0, 4),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, by_handler=True),
    ),
)
