"""JoinGroup (key 11): become, or remain, a member of a group.

v1 rebalance timeout; v2 throttle time; v4 a member without an id gets one and joins again
(KIP-394); v5 static members (KIP-345); v6 flexible; v7 protocol type in the response, protocol name
may be null; v8 the reason (KIP-800); v9 the response may tell the leader not to assign (KIP-814).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Bytes, Int16, Int32, Message, String, since


class JoinGroupRequestProtocol(Message):
    """An assignment protocol that the member supports, and its metadata for the assignor."""

    name: String = since(0)
    metadata: Bytes = since(0)


class JoinGroupRequest(Message):
    """Join the group; the member id is empty the first time."""

    group_id: String = since(0)
    session_timeout_ms: Int32 = since(0)
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = since(0)
    group_instance_id: String | None = since(5, default=None)
    protocol_type: String = since(0)
    protocols: list[JoinGroupRequestProtocol] = since(0)
    reason: String | None = since(8, default=None, ignorable=True)


class JoinGroupResponseMember(Message):
    """A member's metadata, for the leader."""

    member_id: String = since(0)
    group_instance_id: String | None = since(5, default=None, ignorable=True)
    metadata: Bytes = since(0)


class JoinGroupResponse(Message):
    """The new generation; only its leader gets the members."""

    throttle_time_ms: Int32 = since(2, ignorable=True)
    error_code: Int16 = since(0)
    generation_id: Int32 = since(0, default=-1)
    protocol_type: String | None = since(7, default=None, ignorable=True)
    protocol_name: String | None = since(0, nullable=7, default="")
    leader: String = since(0)
    skip_assignment: Bool = since(9)
    member_id: String = since(0)
    members: list[JoinGroupResponseMember] = since(0)


API = Api(
    key=11,
    name="JoinGroup",
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    min_version=0,
    max_version=9,
    first_flexible=6,
    served=(0, 9),
    needs=(Need(Operation.READ, ResourceType.GROUP),),
    request_bytes=8 << 20,
    request_elements=100,  # protocols: all are looked at whenever anybody joins the group
)
