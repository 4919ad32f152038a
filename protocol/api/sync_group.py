"""SyncGroup (key 14): the leader sends the assignments, every member receives its own.

v1 throttle time; v3 static members (KIP-345); v4 flexible; v5 protocol type and name are checked
and returned (KIP-559).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bytes, Int16, Int32, Message, String, since


class SyncGroupRequestAssignment(Message):
    """The assignment of one member."""

    member_id: String = since(0)
    assignment: Bytes = since(0)


class SyncGroupRequest(Message):
    """Ask for the member's assignment; the leader sends those of all members."""

    group_id: String = since(0)
    generation_id: Int32 = since(0)
    member_id: String = since(0)
    group_instance_id: String | None = since(3, default=None)
    protocol_type: String | None = since(5, default=None, ignorable=True)
    protocol_name: String | None = since(5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = since(0)


class SyncGroupResponse(Message):
    """The member's assignment."""

    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(0)
    protocol_type: String | None = since(5, default=None, ignorable=True)
    protocol_name: String | None = since(5, default=None, ignorable=True)
    assignment: Bytes = since(0)


API = Api(
    key=14,
    name="SyncGroup",
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    min_version=0,
    max_version=5,
    first_flexible=4,
    served=(0, 5),
    needs=(Need(Operation.READ, ResourceType.GROUP),),
    request_bytes=8 << 20,
)
