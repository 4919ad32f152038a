"""CreateAcls (key 30): add access rules (KIP-140).

v1 pattern types (KIP-290); v2 flexible; v3 the same as v2.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Message, String, since


class AclCreation(Message):
    """One rule."""

    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    resource_pattern_type: Int8 = since(1, default=3)
    principal: String = since(0)
    host: String = since(0)
    operation: Int8 = since(0)
    permission_type: Int8 = since(0)


class CreateAclsRequest(Message):
    """Add these rules."""

    creations: list[AclCreation] = since(0)


class AclCreationResult(Message):
    """The result for one rule."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


class CreateAclsResponse(Message):
    """The result for every rule, in order."""

    throttle_time_ms: Int32 = since(0)
    results: list[AclCreationResult] = since(0)


API = Api(
    key=30,
    name="CreateAcls",
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    min_version=0,
    max_version=3,
    first_flexible=2,
    served=(0, 3),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
