"""WriteTxnMarkers (key 27): end transactions in partitions that this broker leads.

Behaviour: each partition succeeds or fails on its own. Coordinators send it, and operators with
`kafka-transactions.sh abort`. A marker is written also where the producer has nothing open, as in
Kafka. It is readable, and committed or dropped offsets are in effect, before the answer.

Version notes: 1 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition_async
from broker.transactions.messages import Producer
from protocol.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
    from protocol.errors import BrokerError


async def handle(
    node: Node, request: WriteTxnMarkersRequest, _context: Context
) -> WriteTxnMarkersResponse:
    """Writes each marker into each of its partitions."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=await per_partition_async(
                            node,
                            "write_txn_markers",
                            topic.partition_indexes,
                            partial(_write, node, marker, topic.name),
                            _failed,
                        ),
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def _write(
    node: Node, marker: WritableTxnMarker, topic: str, index: int
) -> WritableTxnMarkerPartitionResult:
    await node.transactions.write_marker(
        (topic, index),
        Producer(marker.producer_id, marker.producer_epoch),
        marker.coordinator_epoch,
        is_commit=marker.transaction_result,
    )
    return WritableTxnMarkerPartitionResult(partition_index=index)


def _failed(index: int, error: BrokerError) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)


def refuse(request: WriteTxnMarkersRequest, error: BrokerError) -> WriteTxnMarkersResponse:
    """Returns the error for every partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[_failed(index, error) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
