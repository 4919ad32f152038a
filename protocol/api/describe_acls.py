"""DescribeAcls (key 29): the access rules that match a filter (KIP-140).

v1 pattern types (KIP-290); v2 flexible; v3 the same as v2.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Message, String, since


class DescribeAclsRequest(Message):
    """Ask for the rules that match."""

    resource_type_filter: Int8 = since(0)
    resource_name_filter: String | None = since(0, default=None)
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: String | None = since(0, default=None)
    host_filter: String | None = since(0, default=None)
    operation: Int8 = since(0)
    permission_type: Int8 = since(0)


class AclDescription(Message):
    """One rule: the principal, the host, the operation, and whether it is allowed or denied."""

    principal: String = since(0)
    host: String = since(0)
    operation: Int8 = since(0)
    permission_type: Int8 = since(0)


class DescribeAclsResource(Message):
    """The rules of one resource."""

    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    pattern_type: Int8 = since(1, default=3)
    acls: list[AclDescription] = since(0)


class DescribeAclsResponse(Message):
    """The matching rules."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    resources: list[DescribeAclsResource] = since(0)


API = Api(
    key=29,
    name="DescribeAcls",
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    min_version=0,
    max_version=3,
    first_flexible=2,
    served=(0, 3),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
)
