"""Heartbeat (key 12): a member reports that it is alive and asks whether the group rebalances.

v1 throttle time; v3 static members (KIP-345); v4 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class HeartbeatRequest(Message):
    """Report that the member is alive in this generation."""

    group_id: String = since(0)
    generation_id: Int32 = since(0)
    member_id: String = since(0)
    group_instance_id: String | None = since(3, default=None)


class HeartbeatResponse(Message):
    """No error, or the reason why the member has to join again."""

    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(0)


API = Api(
    key=12,
    name="Heartbeat",
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    min_version=0,
    max_version=4,
    first_flexible=4,
    served=(0, 4),
    needs=(Need(Operation.READ, ResourceType.GROUP),),
)
