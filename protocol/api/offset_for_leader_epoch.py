"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch (KIP-101, KIP-320).

v1 the epoch that was found is in the response; v2 the client's current epoch, throttle time; v3
replica id; v4 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


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
    """Ask for the end offsets of these epochs."""

    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = since(0)


class EpochEndOffset(Message):
    """The largest epoch up to the requested one, and its end offset; -1 if unknown."""

    error_code: Int16 = since(0)
    partition: Int32 = since(0)
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = since(0, default=-1)


class OffsetForLeaderTopicResult(Message):
    """The results for one topic."""

    topic: String = since(0)
    partitions: list[EpochEndOffset] = since(0)


class OffsetForLeaderEpochResponse(Message):
    """The result of every lookup."""

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
    request_bytes=4 << 20,
)
