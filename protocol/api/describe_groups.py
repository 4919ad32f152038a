"""DescribeGroups (key 15): the state and the members of groups.

v1 throttle time; v3 authorized operations (KIP-430); v4 instance ids (KIP-345); v5 flexible; v6 an
error message, and GROUP_ID_NOT_FOUND for a group that does not exist (KIP-1043).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Bytes, Int16, Int32, Message, String, since


class DescribeGroupsRequest(Message):
    """Describe these groups."""

    groups: list[String] = since(0)
    include_authorized_operations: Bool = since(3)


class DescribedGroupMember(Message):
    """One member: its identity, its metadata and its assignment."""

    member_id: String = since(0)
    group_instance_id: String | None = since(4, default=None, ignorable=True)
    client_id: String = since(0)
    client_host: String = since(0)
    member_metadata: Bytes = since(0)
    member_assignment: Bytes = since(0)


class DescribedGroup(Message):
    """One group; the protocol's name and the members' metadata are set only in a stable group."""

    error_code: Int16 = since(0)
    error_message: String | None = since(6, default=None, ignorable=True)
    group_id: String = since(0)
    group_state: String = since(0)
    protocol_type: String = since(0)
    protocol_data: String = since(0)
    members: list[DescribedGroupMember] = since(0)
    authorized_operations: Int32 = since(3, default=-(2**31), ignorable=True)


class DescribeGroupsResponse(Message):
    """Every requested group."""

    throttle_time_ms: Int32 = since(1, ignorable=True)
    groups: list[DescribedGroup] = since(0)


API = Api(
    key=15,
    name="DescribeGroups",
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    min_version=0,
    max_version=6,
    first_flexible=5,
    served=(0, 6),
    needs=(Need(Operation.DESCRIBE, ResourceType.GROUP),),
)
