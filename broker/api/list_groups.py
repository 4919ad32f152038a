"""ListGroups (key 16): the groups of this broker.

Behaviour: every group with one of the requested states and types, case-insensitively; all groups
are "classic". A group that holds offsets and never had members has the protocol type "".

Version notes: 1 throttle time; 3 flexible; 4 states filter and states; 5 types filter and types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.list_groups import ListGroupsRequest
    from tidelog.protocol.errors import BrokerError

_TYPE = "classic"


async def handle(
    services: Services, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse:
    """Lists the groups that match and that the client may describe."""
    session, allows = context.session, services.authorizer.allows
    sees_all = services.authorizer.allows_on_cluster(session, Operation.DESCRIBE)
    states = set(await listed(state.lower() for state in request.states_filter))
    types = set(await listed(each.lower() for each in request.types_filter))

    def is_wanted(entry: GroupMetadata) -> bool:
        return (
            (not states or entry.group.state.value.lower() in states)
            and (not types or _TYPE in types)
            and (
                sees_all
                or allows(session, Operation.DESCRIBE, ResourceType.GROUP, entry.group.group_id)
            )
        )

    groups = await listed(
        ListedGroup(
            group_id=entry.group.group_id,
            protocol_type=entry.group.protocol_type or "",
            group_state=entry.group.state.value,
            group_type=_TYPE,
        )
        for entry in await listed(services.coordinator.runtime.all(), is_wanted)
    )
    return ListGroupsResponse(groups=groups)


def refuse(_request: ListGroupsRequest, error: BrokerError) -> ListGroupsResponse:
    """Returns the error."""
    return ListGroupsResponse(error_code=error.code, groups=[])
