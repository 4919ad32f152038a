"""DescribeLogDirs (key 35): log directories, and the disk usage of partitions (KIP-113).

v1 the same as v0; v2 flexible; v3 an error at the top; v4 the size of the volume (KIP-827).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class DescribableLogDirTopic(Message):
    """Partitions of one topic."""

    topic: String = since(0)
    partitions: list[Int32] = since(0)


class DescribeLogDirsRequest(Message):
    """Ask about these partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = since(0)


class DescribeLogDirsPartition(Message):
    """One log: its size in bytes, and the lag of its end behind the high watermark."""

    partition_index: Int32 = since(0)
    partition_size: Int64 = since(0)
    offset_lag: Int64 = since(0)
    is_future_key: Bool = since(0)


class DescribeLogDirsTopic(Message):
    """The logs of one topic."""

    name: String = since(0)
    partitions: list[DescribeLogDirsPartition] = since(0)


class DescribeLogDirsResult(Message):
    """One log directory, its logs, and the size of its volume in bytes."""

    error_code: Int16 = since(0)
    log_dir: String = since(0)
    topics: list[DescribeLogDirsTopic] = since(0)
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)


class DescribeLogDirsResponse(Message):
    """Every log directory."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(3, ignorable=True)
    results: list[DescribeLogDirsResult] = since(0)


API = Api(
    key=35,
    name="DescribeLogDirs",
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    min_version=0,
    max_version=4,
    first_flexible=2,
    served=(0, 4),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    request_bytes=4 << 20,
)
