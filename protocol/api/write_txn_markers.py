"""WriteTxnMarkers (key 27): end transactions in partitions, sent by coordinators (KIP-98).

v1 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class WritableTxnMarkerTopic(Message):
    """Partitions of one topic."""

    name: String = since(0)
    partition_indexes: list[Int32] = since(0)


class WritableTxnMarker(Message):
    """The end of one producer's transaction; `transaction_result` is whether it is committed."""

    producer_id: Int64 = since(0)
    producer_epoch: Int16 = since(0)
    transaction_result: Bool = since(0)
    topics: list[WritableTxnMarkerTopic] = since(0)
    coordinator_epoch: Int32 = since(0)


class WriteTxnMarkersRequest(Message):
    """Write these markers."""

    markers: list[WritableTxnMarker] = since(0)


class WritableTxnMarkerPartitionResult(Message):
    """Whether one partition has the marker."""

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)


class WritableTxnMarkerTopicResult(Message):
    """The results for one topic."""

    name: String = since(0)
    partitions: list[WritableTxnMarkerPartitionResult] = since(0)


class WritableTxnMarkerResult(Message):
    """The results for one producer."""

    producer_id: Int64 = since(0)
    topics: list[WritableTxnMarkerTopicResult] = since(0)


class WriteTxnMarkersResponse(Message):
    """The result for every partition."""

    markers: list[WritableTxnMarkerResult] = since(0)


API = Api(
    key=27,
    name="WriteTxnMarkers",
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
    min_version=0,
    max_version=1,
    first_flexible=1,
    served=(0, 1),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    request_bytes=4 << 20,
)
