"""WriteTxnMarkers (key 27): end transactions in partitions that this broker leads.

Behaviour: each partition succeeds or fails on its own. Coordinators send the request, and operators with
`kafka-transactions.sh abort`. A marker is also written if the producer has no open transaction, as in
Kafka. Before the response is sent, the marker is readable, and pending offsets are committed or dropped. All
appends of markers start in the order of the request, and are then waited for together. A negative producer
id is INVALID_PRODUCER_ID_MAPPING, a negative epoch INVALID_PRODUCER_EPOCH. A sender that is not authenticated
as a broker of the cluster may name the coordinator epoch that DescribeProducers returns, or 0: a larger one
is TRANSACTION_COORDINATOR_FENCED (`broker/coordinators/transactions/coordinator_epochs.py`).

Version notes: 1 flexible.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions import coordinator_epochs
from tidelog.broker.network.per_partition import per_partition, per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaStorageError,
    TransactionCoordinatorFenced,
)
from tidelog.protocol.transaction_log import ProducerIdAndEpoch

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.log_opener import Failures
    from tidelog.protocol.api.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.storage.log.partition import Appended

_API = "write_txn_markers"
AT_ONCE = 64
"""The number of markers whose appends start before the event loop serves others."""


class _Write:
    """One marker in one partition, and the part of the response for it."""

    __slots__ = ("index", "marker", "pending", "result", "topic")

    def __init__(self, marker: WritableTxnMarker, topic: str, index: int) -> None:
        self.marker = marker
        self.topic = topic
        self.index = index
        self.result = WritableTxnMarkerPartitionResult(partition_index=index)
        self.pending: asyncio.Future[Appended] | None = None

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer whose transaction ends."""
        return ProducerIdAndEpoch(self.marker.producer_id, self.marker.producer_epoch)

    @property
    def is_fenced(self) -> bool:
        """Whether the marker was refused for a later coordinator epoch."""
        return self.result.error_code == TransactionCoordinatorFenced.code


async def handle(
    services: Services, request: WriteTxnMarkersRequest, context: Context
) -> WriteTxnMarkersResponse:
    """Writes each marker into each of its partitions."""
    writes = [
        [
            [_Write(marker, topic.name, index) for index in topic.partition_indexes]
            for topic in marker.topics
        ]
        for marker in request.markers
    ]
    ordered = [each for topics in writes for topic in topics for each in topic]
    not_opened = await services.partitions.opener.open((each.topic, each.index) for each in ordered)
    allowed = await _allowed(services, context, ordered)
    for first in range(0, len(allowed), AT_ONCE):
        some = allowed[first : first + AT_ONCE]
        await per_partition(
            services, _API, some, partial(_begin, services, not_opened), _failed_write
        )
        await asyncio.sleep(0)
    pending = [each for each in allowed if each.pending is not None]
    await asyncio.gather(
        *(each.pending for each in pending if each.pending is not None), return_exceptions=True
    )
    await per_partition(services, _API, pending, _finish, _failed_write)
    fenced = [each for each in allowed if each.is_fenced]
    await per_partition_async(
        services, _API, fenced, partial(_write_again, services), _failed_write
    )
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name, partitions=[each.result for each in written]
                    )
                    for topic, written in zip(marker.topics, topics, strict=True)
                ],
            )
            for marker, topics in zip(request.markers, writes, strict=True)
        ]
    )


async def _allowed(services: Services, context: Context, ordered: list[_Write]) -> list[_Write]:
    """Returns the markers with coordinator epochs that their sender may name; the others fail."""
    largest = await coordinator_epochs.allowed(services, context)
    above = [each for each in ordered if each.marker.coordinator_epoch > largest]
    await per_partition_async(services, _API, above, partial(_check_epoch, services), _failed_write)
    fenced = [each for each in above if each.is_fenced]
    if fenced:  # their epochs may be newer than this broker's image
        largest = await coordinator_epochs.allowed(services, context, catches_up=True)
        for each in fenced:
            if each.marker.coordinator_epoch <= largest:
                each.result.error_code = 0
    return [each for each in ordered if not each.result.error_code]


async def _check_epoch(services: Services, each: _Write) -> None:
    name, marker = (each.topic, each.index), each.marker
    await coordinator_epochs.check(services, name, marker.producer_id, marker.coordinator_epoch)


def _begin(services: Services, not_opened: Failures, each: _Write) -> None:
    """Starts the append of a marker, which may have to wait for the disk or for other replicas."""
    name = each.topic, each.index
    marker = each.marker
    if marker.producer_id < 0:
        raise InvalidProducerIdMapping(f"producer id {marker.producer_id}")
    if marker.producer_epoch < 0:
        raise InvalidProducerEpoch(f"producer epoch {marker.producer_epoch}")
    begun = services.transactions.markers.begin(
        name,
        each.producer,
        marker.coordinator_epoch,
        is_commit=marker.transaction_result,
    )
    if begun is None:
        failure = not_opened.get(name)
        raise failure or KafkaStorageError(f"{each.topic}-{each.index} is not open yet")
    if isinstance(begun, asyncio.Future):
        each.pending = begun


async def _write_again(services: Services, each: _Write) -> None:
    """Writes a marker that a log with an epoch of no coordinator has fenced."""
    await services.transactions.markers.write_here(
        (each.topic, each.index),
        each.producer,
        each.marker.coordinator_epoch,
        is_commit=each.marker.transaction_result,
    )
    each.result.error_code = 0


def _finish(each: _Write) -> None:
    assert each.pending is not None
    each.pending.result()


def _failed_write(each: _Write, error: BrokerError) -> None:
    each.result.error_code = error.code


def _failed(index: int, error: BrokerError) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)


async def refuse(request: WriteTxnMarkersRequest, error: BrokerError) -> WriteTxnMarkersResponse:
    """Returns the error for every partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=await listed(
                            _failed(index, error) for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
