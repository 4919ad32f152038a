"""DeleteGroups (key 42): delete groups and their offsets.

v1 throttle quota rules; v2 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class DeleteGroupsRequest(Message):
    """Delete these groups."""

    groups_names: list[String] = since(0)


class DeletableGroupResult(Message):
    """The result for one group."""

    group_id: String = since(0)
    error_code: Int16 = since(0)


class DeleteGroupsResponse(Message):
    """The result for every group."""

    throttle_time_ms: Int32 = since(0)
    results: list[DeletableGroupResult] = since(0)


API = Api(
    key=42,
    name="DeleteGroups",
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    min_version=0,
    max_version=2,
    first_flexible=2,
    served=(0, 2),
    needs=(Need(Operation.DELETE, ResourceType.GROUP),),
)
