"""AlterConfigs (key 33): replace all settings of topics and brokers (KIP-133).

v1 the same as v0; v2 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int8, Int16, Int32, Message, String, since


class AlterableConfig(Message):
    """One setting and its value."""

    name: String = since(0)
    value: String | None = since(0, default=None)


class AlterConfigsResource(Message):
    """One resource and all its new settings."""

    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    configs: list[AlterableConfig] = since(0)


class AlterConfigsRequest(Message):
    """Replace the settings of these resources."""

    resources: list[AlterConfigsResource] = since(0)
    validate_only: Bool = since(0)


class AlterConfigsResourceResponse(Message):
    """The result for one resource."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    resource_type: Int8 = since(0)
    resource_name: String = since(0)


class AlterConfigsResponse(Message):
    """The result for every resource."""

    throttle_time_ms: Int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)


API = Api(
    key=33,
    name="AlterConfigs",
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    min_version=0,
    max_version=2,
    first_flexible=2,
    served=(0, 2),
    needs=(
        Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC),
        Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
    request_elements=250_000,  # some fifty settings of thousands of topics
)
