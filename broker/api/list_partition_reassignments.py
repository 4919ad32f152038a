"""ListPartitionReassignments (key 46): one broker reassigns no partitions (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api.list_partition_reassignments import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.list_partition_reassignments import ListPartitionReassignmentsRequest
    from protocol.errors import BrokerError


def handle(
    _node: Node, _request: ListPartitionReassignmentsRequest, _context: Context
) -> ListPartitionReassignmentsResponse:
    """Returns none for any request, even for unknown partitions, as Kafka does."""
    return ListPartitionReassignmentsResponse(topics=[])


def refuse(
    _request: ListPartitionReassignmentsRequest, error: BrokerError
) -> ListPartitionReassignmentsResponse:
    """Returns the error at the top."""
    return ListPartitionReassignmentsResponse(
        error_code=error.code, error_message=error.message, topics=[]
    )
