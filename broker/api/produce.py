"""Produce (key 0): append record sets, and acknowledge them.

Behaviour: acks 0 has no response, and an error closes the connection. acks 1 and -1 get a response
when every partition has been written (with one replica both are the same), and synced if
flush.messages requires it. Any other acks is INVALID_REQUIRED_ACKS for every partition. Each
partition succeeds or fails on its own; `admit_produce` decides which requests may append. Clients
may not write to internal topics (INVALID_TOPIC_EXCEPTION).

Version notes: 1 throttle time; 2 log append time (KIP-32); 3 transactional id, one format-2 batch
per partition; 5 log start offset; 8 record errors and message (KIP-467); 9 flexible; 10 current
leader (left out: there is one node); 13 topic ids instead of names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.network.context import CloseConnection
from broker.network.per_partition import per_partition
from broker.partitions import admission
from protocol.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.errors import (
    ERRORS,
    ErrorCode,
    InvalidTimestamp,
    KafkaStorageError,
)
from protocol.records.layout import NO_TIMESTAMP
from storage.log.partition import Appended, Partition
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.network.context import Context
    from broker.node import Node
    from broker.partitions.openings import Failures
    from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from protocol.errors import BrokerError
    from protocol.topic_partition import TopicPartition


ACKS_ALL = -1
_TOPIC_IDS_SINCE = 13

# Errors for which Kafka's response has no log start offset.
_WITHOUT_START_OFFSET = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class _Append:
    """One partition's part of a request, and of its response."""

    __slots__ = ("data", "partition", "pending", "result", "topic")

    def __init__(self, topic: TopicProduceData, data: PartitionProduceData) -> None:
        self.topic = topic
        self.data = data
        self.result = PartitionProduceResponse(
            index=data.index, base_offset=-1, log_append_time_ms=NO_TIMESTAMP, log_start_offset=-1
        )
        self.partition: Partition | None = None  # set once the request may append to it
        # Set if the append runs in a thread, or waits for the disk.
        self.pending: asyncio.Future[Appended] | None = None

    def done(self, appended: Appended) -> PartitionProduceResponse:
        """Fills in the result of the append."""
        self.result.base_offset = appended.base_offset
        self.result.log_append_time_ms = appended.log_append_time_ms
        self.result.log_start_offset = appended.log_start_offset
        return self.result


def handle(
    node: Node, request: ProduceRequest, context: Context
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    """Appends the records of each partition separately; opens closed partitions first."""
    closed = node.openings.closed(_names(node, request, context.version))
    if closed:
        return _open_and_append(node, request, context, closed)
    return _append(node, request, context, {})


def _names(node: Node, request: ProduceRequest, version: int) -> Iterator[TopicPartition]:
    """Yields the partitions to append to, if they are here."""
    for topic in request.topic_data:
        name = topic.name
        if version >= _TOPIC_IDS_SINCE:
            known = node.metadata.image.topics_by_id.get(topic.topic_id)
            if known is None:
                continue
            name = known.name
        for data in topic.partition_data:
            yield name, data.index


async def _open_and_append(
    node: Node, request: ProduceRequest, context: Context, closed: list[TopicPartition]
) -> ProduceResponse | None:
    answer = _append(node, request, context, await node.openings.open(closed))
    return await answer if isinstance(answer, Coroutine) else answer


def _append(
    node: Node, request: ProduceRequest, context: Context, not_opened: Failures
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    pending: list[_Append] = []

    def append(each: _Append) -> PartitionProduceResponse:
        admitted = _admitted(node, request, each, context, not_opened)
        version, waits = context.version, request.acks != 0
        if isinstance(admitted, Partition):
            each.partition = admitted
            appended = node.append(admitted, each.data.records or b"", version, waits=waits)
            if request.acks == ACKS_ALL and node.replicas is not None:
                appended = node.replicas.acknowledged(admitted, appended, request.timeout_ms)
            if isinstance(appended, Appended):
                return each.done(appended)
            each.pending = appended
        else:
            each.pending = asyncio.ensure_future(
                _append_when_admitted(node, each, version, admitted, waits=waits)
            )
        pending.append(each)
        return each.result

    failed = partial(_failed, node, context.version)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=per_partition(
                    node,
                    "produce",
                    [_Append(topic, data) for data in topic.partition_data],
                    append,
                    failed,
                ),
            )
            for topic in request.topic_data
        ]
    )
    if pending:
        return _finish(node, request, response, pending, context.version)
    return _answer(request, response)


def _admitted(
    node: Node, request: ProduceRequest, wanted: _Append, context: Context, not_opened: Failures
) -> Partition | asyncio.Future[Partition]:
    """Returns the partition to append to, now or later. Raises the error if that is refused."""
    topic, index = wanted.topic, wanted.data.index
    by_id = context.version >= _TOPIC_IDS_SINCE
    try:
        return admission.admit_produce(
            node,
            context.session,
            topic.topic_id if by_id else topic.name,
            index,
            request.acks,
            request.transactional_id,
            wanted.data.records or b"",
        )
    except WouldBlock:
        name = node.topic_name(topic.topic_id) if by_id else topic.name
        failure = not_opened.get((name, index))
        raise failure or KafkaStorageError(f"{name}-{index} is not open yet") from None


async def _append_when_admitted(
    node: Node, wanted: _Append, version: int, admitted: asyncio.Future[Partition], *, waits: bool
) -> Appended:
    """Appends after another broker has verified the request."""
    wanted.partition = await admitted
    appended = node.append(wanted.partition, wanted.data.records or b"", version, waits=waits)
    return appended if isinstance(appended, Appended) else await appended


async def _finish(
    node: Node,
    request: ProduceRequest,
    response: ProduceResponse,
    pending: list[_Append],
    version: int,
) -> ProduceResponse | None:
    """Waits for the appends that run in a thread or wait for the disk."""

    def finish(each: _Append) -> PartitionProduceResponse:
        assert each.pending is not None
        return each.done(each.pending.result())

    await asyncio.gather(
        *(each.pending for each in pending if each.pending), return_exceptions=True
    )
    try:
        per_partition(node, "produce", pending, finish, partial(_failed, node, version))
    finally:
        # An error's traceback refers to this frame, and this frame to the error. Without the future
        # there is no cycle, so the append's decompressed records are freed at once.
        for each in pending:
            each.pending = None
    return _answer(request, response)


def _answer(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    """Returns the response, or None for acks=0, for which an error closes the connection."""
    if request.acks != 0:
        return response
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise CloseConnection(
                    f"acks=0 and {ERRORS[result.error_code].name}: {result.error_message}"
                )
    return None


def _failed(
    node: Node, version: int, wanted: _Append, error: BrokerError
) -> PartitionProduceResponse:
    """Fills in one partition's error code, sentence and refused records."""
    result, partition = wanted.result, wanted.partition
    node.metrics.produce_failed(error.code)
    if partition is not None:
        if isinstance(error, InvalidTimestamp):
            node.time_watch.refused(partition, error)
        if error.code not in _WITHOUT_START_OFFSET:
            result.log_start_offset = partition.log_start_offset
    result.error_code = node.code_for(error.code, version <= 3)
    result.error_message = error.message
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in error.record_errors
    ]
    return result


def refuse(request: ProduceRequest, error: BrokerError) -> ProduceResponse:
    """Returns the error for every partition."""
    if request.acks == 0:
        raise CloseConnection(f"acks=0 and {error.code.name}: {error.message}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=error.code,
                        error_message=error.message,
                        base_offset=-1,
                        log_append_time_ms=NO_TIMESTAMP,
                        log_start_offset=-1,
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
