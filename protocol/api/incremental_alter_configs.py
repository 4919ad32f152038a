"""IncrementalAlterConfigs (key 44): change settings one by one (KIP-339).

v1 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int8, Int16, Int32, Message, String, since


class AlterableConfig(Message):
    """One change: set (0), delete (1), append to a list (2) or subtract from it (3)."""

    name: String = since(0)
    config_operation: Int8 = since(0)
    value: String | None = since(0, default=None)


class AlterConfigsResource(Message):
    """The changes to one resource; settings that are not named are unchanged."""

    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    configs: list[AlterableConfig] = since(0)


class IncrementalAlterConfigsRequest(Message):
    """Change these settings, or only validate the request."""

    resources: list[AlterConfigsResource] = since(0)
    validate_only: Bool = since(0)


class AlterConfigsResourceResponse(Message):
    """The result for one resource."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    resource_type: Int8 = since(0)
    resource_name: String = since(0)


class IncrementalAlterConfigsResponse(Message):
    """The result for every resource."""

    throttle_time_ms: Int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)


API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    min_version=0,
    max_version=1,
    first_flexible=1,
    served=(0, 1),
    needs=(
        Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC),
        Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
    request_elements=250_000,  # some fifty settings of thousands of topics
)
