"""LeaveGroup (key 13): members go, of their own will or removed by an operator.

Behaviour: from version 3 on each has an answer of its own, and a group that is not there fails them all.

Version notes: 3 several members, by id or by instance id (KIP-345); 4 flexible; 5 a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.context import as_broker_error
from protocol.api.leave_group import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.leave_group import LeaveGroupRequest
    from protocol.errors import BrokerError

_SEVERAL_SINCE = 3


def handle(node: Node, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    """Let them go."""
    if context.version < _SEVERAL_SINCE:
        node.coordinator.leave(request.group_id, request.member_id, None)
        return LeaveGroupResponse()
    node.coordinator.find(request.group_id)
    answers = []
    for member in request.members:
        code = 0
        try:
            node.coordinator.leave(request.group_id, member.member_id, member.group_instance_id)
        except Exception as error:  # noqa: BLE001 - each member has an answer of its own
            code = as_broker_error(node, error, "LeaveGroup").code
        answers.append(
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
        )
    return LeaveGroupResponse(members=answers)


def refuse(_request: LeaveGroupRequest, error: BrokerError) -> LeaveGroupResponse:
    """The error of them all."""
    return LeaveGroupResponse(error_code=error.code, members=[])
