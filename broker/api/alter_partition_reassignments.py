"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455).

Behaviour: each partition succeeds or fails on its own. The response is sent when the reassignment has
started, not when every new replica is in sync. A new target replaces the one of a reassignment in progress,
null cancels it, or is NO_REASSIGNMENT_IN_PROGRESS. The current replicas as target succeed without effect.
Replicas that are not registered, an empty list, or a replica named twice are INVALID_REPLICA_ASSIGNMENT, and
a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
    )
    from tidelog.protocol.errors import BrokerError


async def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, _context: Context
) -> AlterPartitionReassignmentsResponse:
    """Starts the reassignments."""
    from tidelog.broker.controller.topics.partition_changes import reassign

    wanted = {
        (topic.name, each.partition_index): each.replicas
        for topic in request.topics
        for each in topic.partitions
    }
    failed = await reassign(services, wanted, request.timeout_ms)

    def check(topic: str, partition: ReassignablePartition) -> None:
        error = failed.get((topic, partition.partition_index))
        if error is not None:
            raise error

    return await _response(services, request, check)


async def _response(
    services: Services,
    request: AlterPartitionReassignmentsRequest,
    check: Callable[[str, ReassignablePartition], None],
) -> AlterPartitionReassignmentsResponse:
    """Returns the results; `check` raises the error of a partition."""
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=await per_partition(
                    services,
                    "alter_partition_reassignments",
                    topic.partitions,
                    partial(_one, check, topic.name),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


def _one(
    check: Callable[[str, ReassignablePartition], None], topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    check(topic, wanted)
    return ReassignablePartitionResponse(partition_index=wanted.partition_index)


def _failed(wanted: ReassignablePartition, error: BrokerError) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index,
        error_code=error.code,
        error_message=error.message,
    )


async def refuse(
    request: AlterPartitionReassignmentsRequest, error: BrokerError
) -> AlterPartitionReassignmentsResponse:
    """Returns the error at the top, and for every partition."""
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=await listed(_failed(wanted, error) for wanted in topic.partitions),
            )
            for topic in request.topics
        ],
    )
