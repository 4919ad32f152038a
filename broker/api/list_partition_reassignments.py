"""ListPartitionReassignments (key 46): nothing is on the move where there is one broker (KIP-455)."""

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
    """None of them, whatever is asked for, known or not, as Kafka answers."""
    return ListPartitionReassignmentsResponse(topics=[])


def refuse(
    _request: ListPartitionReassignmentsRequest, error: BrokerError
) -> ListPartitionReassignmentsResponse:
    """The error at the top."""
    return ListPartitionReassignmentsResponse(
        error_code=error.code, error_message=error.message, topics=[]
    )
