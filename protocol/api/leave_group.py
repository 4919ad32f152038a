"""LeaveGroup (key 13): members leave, by themselves or because an operator removes them.

v1 throttle time; v3 several members, by id or instance id (KIP-345); v4 flexible; v5 the reason
(KIP-800).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class MemberIdentity(Message):
    """A member that leaves: by member id, or by instance id with an empty member id."""

    member_id: String = since(3)
    group_instance_id: String | None = since(3, default=None)
    reason: String | None = since(5, default=None, ignorable=True)


class LeaveGroupRequest(Message):
    """One member (to v2) or several members (from v3) leave."""

    group_id: String = since(0)
    member_id: String = since(0, until=2)
    members: list[MemberIdentity] = since(3)


class MemberResponse(Message):
    """The result for one member."""

    member_id: String = since(3)
    group_instance_id: String | None = since(3, default=None)
    error_code: Int16 = since(3)


class LeaveGroupResponse(Message):
    """The result; from v3 on also for each member."""

    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(0)
    members: list[MemberResponse] = since(3, ignorable=True)


API = Api(
    key=13,
    name="LeaveGroup",
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    min_version=0,
    max_version=5,
    first_flexible=4,
    served=(0, 5),
    needs=(Need(Operation.READ, ResourceType.GROUP),),
)
