"""JoinGroup (key 11): become, or remain, a member of a group.

Behaviour: the response is sent when the generation is complete; see `broker.coordinators.groups`. An error
carries the member id of the request. MEMBER_ID_REQUIRED carries the id to join with. A member that
is removed while it waits gets no id, and one that is replaced while it waits gets the id that it
had. A member that exceeds group.max.size gets no id, and is removed if it was a member. A new group or
member beyond max.groups or max.groups.bytes is POLICY_VIOLATION.

Version notes: 0 the session timeout is also the rebalance timeout; 1 has its own; 4 a member
without an id gets one first (KIP-394), unless it is static; 5 static members (KIP-345); 6 flexible;
7 the response names the protocol type, and no protocol is null; 8 a reason, which is logged; 9 a
leader that rejoins may have to skip the assignment (KIP-814).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.coordinator import new_member_id
from tidelog.broker.coordinators.groups.messages import Join
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.group_errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    MemberIdRequired,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.join_group import JoinGroupRequest

log = logging.getLogger("tidelog.groups")

_REBALANCE_TIMEOUT_SINCE = 1
_ID_FIRST_SINCE = 4
_NO_PROTOCOL_SINCE = 7
_SKIPPING_SINCE = 9
_LONGEST_CLIENT_ID = 255  # characters that are kept, and shown by DescribeGroups


async def handle(
    services: Services, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    """Adds the member to the group, and waits for the new generation."""
    try:
        return await _joined(services, request, context)
    except BrokerError as error:
        refused = refuse(request, error)
        if context.version >= _NO_PROTOCOL_SINCE:
            refused.protocol_name = None
        return refused


async def _joined(
    services: Services, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    services.authorizer.require(
        context.session, Operation.READ, ResourceType.GROUP, request.group_id
    )
    instance_id, client_id = request.group_instance_id, context.header.client_id or ""
    has_timeout = context.version >= _REBALANCE_TIMEOUT_SINCE
    joined = await services.coordinator.join(
        request.group_id,
        Join(
            request.member_id,
            new_member_id(client_id if instance_id is None else instance_id),
            instance_id,
            client_id[:_LONGEST_CLIENT_ID],
            "/" + context.connection.peer.rpartition(":")[0],
            request.session_timeout_ms,
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            request.protocol_type,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            needs_id=context.version >= _ID_FIRST_SINCE,
            can_skip=context.version >= _SKIPPING_SINCE,
        ),
    )
    log.debug(
        "member joined group",
        extra={
            "group": request.group_id,
            "member": joined.member_id,
            "generation": joined.generation,
            "reason": request.reason,
        },
    )
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment and context.version >= _SKIPPING_SINCE,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member, group_instance_id=instance, metadata=metadata)
            for member, instance, metadata in joined.members
        ],
    )


def refuse(request: JoinGroupRequest, error: BrokerError) -> JoinGroupResponse:
    """Returns the error, and the member id to continue with."""
    member_id: str | None = None
    if isinstance(error, MemberIdRequired | UnknownMemberId | FencedInstanceId):
        member_id = error.member_id
    elif isinstance(error, GroupMaxSizeReached):
        member_id = ""
    return JoinGroupResponse(
        error_code=error.code,
        generation_id=-1,
        protocol_name="",
        leader="",
        member_id=request.member_id if member_id is None else member_id,
        members=[],
    )
