"""LeaveGroup (key 13): members leave, by themselves or because an operator removes them.

Behaviour: from version 3 on each member has its own result, and a missing group is an error for
all.

Version notes: 3 several members, by id or by instance id (KIP-345); 4 flexible; 5 a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.leave_group import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
    from tidelog.protocol.errors import BrokerError

_SEVERAL_SINCE = 3


async def handle(
    services: Services, request: LeaveGroupRequest, context: Context
) -> LeaveGroupResponse:
    """Removes the members from the group."""
    services.authorizer.require(
        context.session, Operation.READ, ResourceType.GROUP, request.group_id
    )
    if context.version < _SEVERAL_SINCE:
        services.coordinator.leave(request.group_id, request.member_id, None)
        return LeaveGroupResponse()
    services.coordinator.get(request.group_id)

    def leave(member: MemberIdentity) -> MemberResponse:
        services.coordinator.leave(request.group_id, member.member_id, member.group_instance_id)
        return _member(member, 0)

    def failed(member: MemberIdentity, error: BrokerError) -> MemberResponse:
        return _member(member, error.code)

    return LeaveGroupResponse(
        members=await per_partition(services, "leave_group", request.members, leave, failed)
    )


def _member(member: MemberIdentity, code: int) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )


def refuse(_request: LeaveGroupRequest, error: BrokerError) -> LeaveGroupResponse:
    """Returns the error for all members."""
    return LeaveGroupResponse(error_code=error.code, members=[])
