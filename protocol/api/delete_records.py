"""DeleteRecords (key 21): delete the records before an offset (KIP-107).

v1 the same as v0; v2 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class DeleteRecordsPartition(Message):
    """One partition and the first offset to keep; -1 deletes all below the high watermark."""

    partition_index: Int32 = since(0)
    offset: Int64 = since(0)


class DeleteRecordsTopic(Message):
    """The partitions of one topic."""

    name: String = since(0)
    partitions: list[DeleteRecordsPartition] = since(0)


class DeleteRecordsRequest(Message):
    """Delete the records before these offsets."""

    topics: list[DeleteRecordsTopic] = since(0)
    timeout_ms: Int32 = since(0)


class DeleteRecordsPartitionResult(Message):
    """The result for one partition: its new log start offset."""

    partition_index: Int32 = since(0)
    low_watermark: Int64 = since(0)
    error_code: Int16 = since(0)


class DeleteRecordsTopicResult(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[DeleteRecordsPartitionResult] = since(0)


class DeleteRecordsResponse(Message):
    """The result for every partition."""

    throttle_time_ms: Int32 = since(0)
    topics: list[DeleteRecordsTopicResult] = since(0)


API = Api(
    key=21,
    name="DeleteRecords",
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    min_version=0,
    max_version=2,
    first_flexible=2,
    served=(0, 2),
    needs=(Need(Operation.DELETE, ResourceType.TOPIC),),
    request_bytes=4 << 20,
)
