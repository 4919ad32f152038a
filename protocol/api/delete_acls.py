"""DeleteAcls (key 31): remove the access rules that match filters (KIP-140).

v1 pattern types (KIP-290); v2 flexible; v3 the same as v2.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Message, String, since


class DeleteAclsFilter(Message):
    """A filter for rules."""

    resource_type_filter: Int8 = since(0)
    resource_name_filter: String | None = since(0, default=None)
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: String | None = since(0, default=None)
    host_filter: String | None = since(0, default=None)
    operation: Int8 = since(0)
    permission_type: Int8 = since(0)


class DeleteAclsRequest(Message):
    """Remove the rules that match any of these filters."""

    filters: list[DeleteAclsFilter] = since(0)


class DeleteAclsMatchingAcl(Message):
    """One rule that was removed."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    pattern_type: Int8 = since(1, default=3)
    principal: String = since(0)
    host: String = since(0)
    operation: Int8 = since(0)
    permission_type: Int8 = since(0)


class DeleteAclsFilterResult(Message):
    """The rules that one filter removed."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = since(0)


class DeleteAclsResponse(Message):
    """The result for every filter, in order."""

    throttle_time_ms: Int32 = since(0)
    filter_results: list[DeleteAclsFilterResult] = since(0)


API = Api(
    key=31,
    name="DeleteAcls",
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    min_version=0,
    max_version=3,
    first_flexible=2,
    served=(0, 3),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
