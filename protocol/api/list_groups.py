"""ListGroups (key 16): the groups that this broker coordinates.

v1 throttle time; v3 flexible; v4 filter by state (KIP-518); v5 filter by type (KIP-848).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class ListGroupsRequest(Message):
    """List the groups in one of these states and of one of these types; an empty list means all."""

    states_filter: list[String] = since(4)
    types_filter: list[String] = since(5)


class ListedGroup(Message):
    """One group; the protocol type is "consumer", "connect" or the clients' choice."""

    group_id: String = since(0)
    protocol_type: String = since(0)
    group_state: String = since(4, ignorable=True)
    group_type: String = since(5, ignorable=True)


class ListGroupsResponse(Message):
    """The groups that match."""

    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(0)
    groups: list[ListedGroup] = since(0)


API = Api(
    key=16,
    name="ListGroups",
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    min_version=0,
    max_version=5,
    first_flexible=3,
    served=(0, 5),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.GROUP),
        Need(Operation.DESCRIBE, ResourceType.CLUSTER, by_handler=True),
    ),
)
