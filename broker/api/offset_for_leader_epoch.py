"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch in this log.

Behaviour: returns the largest epoch up to the requested one, and its end offset; -1, -1 if unknown.
A consumer uses it to find out whether the log was truncated before its position.

Version notes: 1 the epoch in the response; 2 throttle time, current leader epoch checked; 3 replica
id; 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.broker.partitions.offload import answer
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from tidelog.protocol.errors import BrokerError


async def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: Context
) -> OffsetForLeaderEpochResponse:
    """Returns the results now, or after the partitions have been opened."""
    names = (
        (topic.topic, wanted.partition) for topic in request.topics for wanted in topic.partitions
    )
    return await answer(services, names, partial(_answer, services, request, context))


async def _answer(
    services: Services, request: OffsetForLeaderEpochRequest, context: Context, permit: Permit
) -> OffsetForLeaderEpochResponse:
    """Finds the end offset of each partition's epoch separately."""
    is_broker = services.authorizer.allows_on_cluster(context.session, Operation.CLUSTER_ACTION)

    def find(name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        if not is_broker:
            services.authorizer.require(
                context.session, Operation.DESCRIBE, ResourceType.TOPIC, name
            )
        return _one(services, permit, name, wanted)

    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=await per_partition(
                    services,
                    "offset_for_leader_epoch",
                    topic.partitions,
                    partial(find, topic.topic),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


def _one(
    services: Services, permit: Permit, name: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    permit.check()
    partition = services.partitions.leader(
        name, wanted.partition, wanted.current_leader_epoch, permit.may_block
    )
    epoch, end_offset = partition.reader.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


def _failed(wanted: OffsetForLeaderPartition, error: BrokerError) -> EpochEndOffset:
    return EpochEndOffset(
        partition=wanted.partition, error_code=error.code, leader_epoch=-1, end_offset=-1
    )


async def refuse(
    request: OffsetForLeaderEpochRequest, error: BrokerError
) -> OffsetForLeaderEpochResponse:
    """Returns the error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=await listed(_failed(wanted, error) for wanted in topic.partitions),
            )
            for topic in request.topics
        ]
    )
