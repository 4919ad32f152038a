"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496).

It has one version, which is not flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class OffsetDeleteRequestPartition(Message):
    """One partition."""

    partition_index: Int32 = since(0)


class OffsetDeleteRequestTopic(Message):
    """Partitions of one topic."""

    name: String = since(0)
    partitions: list[OffsetDeleteRequestPartition] = since(0)


class OffsetDeleteRequest(Message):
    """Delete the group's offsets of these partitions."""

    group_id: String = since(0)
    topics: list[OffsetDeleteRequestTopic] = since(0)


class OffsetDeleteResponsePartition(Message):
    """The result for one partition."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)


class OffsetDeleteResponseTopic(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[OffsetDeleteResponsePartition] = since(0)


class OffsetDeleteResponse(Message):
    """The result for every partition, or one error for all."""

    error_code: Int16 = since(0)
    throttle_time_ms: Int32 = since(0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = since(0)


API = Api(
    key=47,
    name="OffsetDelete",
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    min_version=0,
    max_version=0,
    first_flexible=None,
    served=(0, 0),
    needs=(
        Need(Operation.DELETE, ResourceType.GROUP),
        Need(Operation.READ, ResourceType.TOPIC),
    ),
)
