"""OffsetForLeaderEpoch (key 23): where a leader epoch ended in this log.

Behaviour: the largest epoch not above the one asked for, and its end offset; -1, -1 when unknown. A
consumer uses it to find out whether its position was cut off.

Version notes: 1 answers the epoch; 2 throttle time, current leader epoch checked; 3 replica id; 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from broker.network.per_partition import per_partition
from protocol.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from protocol.errors import BrokerError


def handle(
    node: Node, request: OffsetForLeaderEpochRequest, _context: Context
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    """Answer now, or when the partitions have been opened."""
    names = [
        (topic.topic, wanted.partition) for topic in request.topics for wanted in topic.partitions
    ]
    closed = node.openings.closed(names)
    return _open_and_answer(node, request, closed) if closed else _answer(node, request)


async def _open_and_answer(
    node: Node, request: OffsetForLeaderEpochRequest, closed: list[tuple[str, int]]
) -> OffsetForLeaderEpochResponse:
    await node.openings.open(closed)
    return await node.pools.reads.run(_answer, node, request)


def _answer(node: Node, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Answer every partition for itself."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=per_partition(
                    node,
                    "offset_for_leader_epoch",
                    topic.partitions,
                    partial(_one, node, topic.topic),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


def _one(node: Node, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.partition(name, wanted.partition)
    node.check_leader_epoch(partition, wanted.current_leader_epoch)
    epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


def _failed(wanted: OffsetForLeaderPartition, error: BrokerError) -> EpochEndOffset:
    return EpochEndOffset(
        partition=wanted.partition, error_code=error.code, leader_epoch=-1, end_offset=-1
    )


def refuse(
    request: OffsetForLeaderEpochRequest, error: BrokerError
) -> OffsetForLeaderEpochResponse:
    """Every partition gets the error."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_failed(wanted, error) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
