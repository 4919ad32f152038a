"""DescribeGroups (key 15): the state and the members of groups.

Behaviour: as in Kafka, the members' metadata and assignments are in the response only while the
group is stable. Without an authorizer every operation is allowed. The group "" holds offsets of
clients without a group, and is described like any other. A group that is named twice is described once:
its description may be thousands of times as long as its name.

Version notes: a group that does not exist is "Dead" without an error up to 5, GROUP_ID_NOT_FOUND
from 6 on (KIP-1043); 4 instance ids; 5 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tidelog.protocol.group_errors import GroupIdNotFound

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.groups.group import Group
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_groups import DescribeGroupsRequest
    from tidelog.protocol.errors import BrokerError

_NOT_FOUND_SINCE = 6


async def handle(
    services: Services, request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    """Describes each group."""

    def describe(group_id: str) -> DescribedGroup:
        services.authorizer.require(
            context.session, Operation.DESCRIBE, ResourceType.GROUP, group_id
        )
        entry = services.coordinator.get(group_id, may_be_empty=True)
        if entry is not None:
            described = _described(entry.group)
        elif context.version >= _NOT_FOUND_SINCE:
            raise GroupIdNotFound(f"there is no group {group_id}")
        else:
            described = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if request.include_authorized_operations:
            described.authorized_operations = services.authorizer.operations(
                context.session, ResourceType.GROUP, group_id
            )
        return described

    return DescribeGroupsResponse(
        groups=await per_partition(
            services, "describe_groups", dict.fromkeys(request.groups), describe, _failed
        )
    )


def _described(group: Group) -> DescribedGroup:
    is_stable = group.state is State.STABLE
    protocol = group.protocol or ""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


def _failed(group_id: str, error: BrokerError) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=error.code,
        error_message=error.message,
        group_state=State.DEAD.value if error.code == GroupIdNotFound.code else "",
    )


async def refuse(request: DescribeGroupsRequest, error: BrokerError) -> DescribeGroupsResponse:
    """Returns the error for every group."""
    return DescribeGroupsResponse(
        groups=await listed(_failed(group_id, error) for group_id in request.groups)
    )
