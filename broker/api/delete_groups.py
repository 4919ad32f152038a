"""DeleteGroups (key 42): forget groups and their offsets.

Behaviour: only empty groups go: NON_EMPTY_GROUP for others, GROUP_ID_NOT_FOUND for those not there. It is in
the log before it is answered. A group that is named twice is answered once.

Version notes: 1 throttle quota rules; 2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.context import as_broker_error
from protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.delete_groups import DeleteGroupsRequest
    from protocol.errors import BrokerError


async def handle(
    node: Node, request: DeleteGroupsRequest, _context: Context
) -> DeleteGroupsResponse:
    """Delete each."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        code = 0
        try:
            await node.coordinator.forget(group_id)
        except Exception as error:  # noqa: BLE001 - each group has an answer of its own
            code = as_broker_error(node, error, "DeleteGroups").code
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


def refuse(request: DeleteGroupsRequest, error: BrokerError) -> DeleteGroupsResponse:
    """The error for every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in request.groups_names
        ]
    )
