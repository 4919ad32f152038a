"""AlterPartitionReassignments (key 45): this broker is the only one for partitions (KIP-455).

Behaviour: each partition is checked separately. A reassignment to this broker alone succeeds
without effect. One to any other broker, to none, or to one twice is INVALID_REPLICA_ASSIGNMENT. A
cancellation (null) is NO_REASSIGNMENT_IN_PROGRESS. A partition that does not exist is
UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition
from protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
    )
    from protocol.errors import BrokerError


def handle(
    node: Node, request: AlterPartitionReassignmentsRequest, _context: Context
) -> AlterPartitionReassignmentsResponse:
    """Checks the request; nothing is moved."""
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=per_partition(
                    node,
                    "alter_partition_reassignments",
                    topic.partitions,
                    partial(_one, node, topic.name),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


def _one(node: Node, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    _check(node, topic, wanted)
    return ReassignablePartitionResponse(partition_index=wanted.partition_index)


def _check(node: Node, topic: str, wanted: ReassignablePartition) -> None:
    known = node.metadata.image.topics.get(topic)
    if known is None:
        raise UnknownTopicOrPartition(f"there is no topic {topic}")
    if not 0 <= wanted.partition_index < known.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{wanted.partition_index}")
    if wanted.replicas is None:
        raise NoReassignmentInProgress(f"{topic}-{wanted.partition_index} is not being moved")
    if wanted.replicas != [node.config.node_id]:
        raise InvalidReplicaAssignment(
            f"replicas {wanted.replicas}: there is one broker, {node.config.node_id}"
        )


def _failed(wanted: ReassignablePartition, error: BrokerError) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index,
        error_code=error.code,
        error_message=error.message,
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, error: BrokerError
) -> AlterPartitionReassignmentsResponse:
    """Returns the error at the top, and for every partition."""
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_failed(wanted, error) for wanted in topic.partitions]
            )
            for topic in request.topics
        ],
    )
