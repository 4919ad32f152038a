"""DeleteGroups (key 42): delete groups and their offsets.

Behaviour: only empty groups are deleted: others are NON_EMPTY_GROUP, missing ones
GROUP_ID_NOT_FOUND. The deletion is in the log before the response is sent. A group that is named
twice has one result.

Version notes: 1 throttle quota rules; 2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.delete_groups import DeleteGroupsRequest
    from tidelog.protocol.errors import BrokerError


async def handle(
    services: Services, request: DeleteGroupsRequest, context: Context
) -> DeleteGroupsResponse:
    """Deletes each group separately."""

    async def delete(group_id: str) -> DeletableGroupResult:
        services.authorizer.require(context.session, Operation.DELETE, ResourceType.GROUP, group_id)
        await services.coordinator.groups.delete(group_id)
        return DeletableGroupResult(group_id=group_id)

    return DeleteGroupsResponse(
        results=await per_partition_async(
            services, "delete_groups", dict.fromkeys(request.groups_names), delete, _failed
        )
    )


def _failed(group_id: str, error: BrokerError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code)


async def refuse(request: DeleteGroupsRequest, error: BrokerError) -> DeleteGroupsResponse:
    """Returns the error for every group."""
    return DeleteGroupsResponse(
        results=await listed(_failed(group_id, error) for group_id in request.groups_names)
    )
