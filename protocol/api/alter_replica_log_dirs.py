"""AlterReplicaLogDirs (key 34): move replicas to other log directories of a broker (KIP-113).

v1 is the same as v0; v2 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class AlterReplicaLogDirTopic(Message):
    """Partitions of one topic."""

    name: String = since(0)
    partitions: list[Int32] = since(0)


class AlterReplicaLogDir(Message):
    """A directory, and the partitions that are to be moved to it."""

    path: String = since(0)
    topics: list[AlterReplicaLogDirTopic] = since(0)


class AlterReplicaLogDirsRequest(Message):
    """Move these partitions."""

    dirs: list[AlterReplicaLogDir] = since(0)


class AlterReplicaLogDirPartitionResult(Message):
    """The result for one partition."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)


class AlterReplicaLogDirTopicResult(Message):
    """The results for one topic."""

    topic_name: String = since(0)
    partitions: list[AlterReplicaLogDirPartitionResult] = since(0)


class AlterReplicaLogDirsResponse(Message):
    """The result for every partition."""

    throttle_time_ms: Int32 = since(0)
    results: list[AlterReplicaLogDirTopicResult] = since(0)


API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
    min_version=0,
    max_version=2,
    first_flexible=2,
    served=(0, 2),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    request_bytes=4 << 20,
)
