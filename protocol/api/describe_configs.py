"""DescribeConfigs (key 32): the settings of topics and brokers.

v0 says whether a setting has its default; v1 says where its value comes from, with its synonyms
(KIP-226); v3 types and documentation (KIP-569); v4 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int8, Int16, Int32, Message, String, since


class DescribeConfigsResource(Message):
    """A topic (2) or a broker (4), and the wanted settings; null means all."""

    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    configuration_keys: list[String] | None = since(0)


class DescribeConfigsRequest(Message):
    """Ask for the settings of these resources."""

    resources: list[DescribeConfigsResource] = since(0)
    include_synonyms: Bool = since(1)
    include_documentation: Bool = since(3)


class DescribeConfigsSynonym(Message):
    """A value that would apply without those before it, and its source."""

    name: String = since(1)
    value: String | None = since(1, default=None)
    source: Int8 = since(1)


class DescribeConfigsResourceResult(Message):
    """One setting of a resource."""

    name: String = since(0)
    value: String | None = since(0, default=None)
    read_only: Bool = since(0)
    is_default: Bool = since(0, until=0, ignorable=True)
    config_source: Int8 = since(1, default=-1, ignorable=True)
    is_sensitive: Bool = since(0)
    synonyms: list[DescribeConfigsSynonym] = since(1, ignorable=True)
    config_type: Int8 = since(3, ignorable=True)
    documentation: String | None = since(3, default=None, ignorable=True)


class DescribeConfigsResult(Message):
    """The settings of one resource."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    configs: list[DescribeConfigsResourceResult] = since(0)


class DescribeConfigsResponse(Message):
    """The settings of every requested resource."""

    throttle_time_ms: Int32 = since(0)
    results: list[DescribeConfigsResult] = since(0)


API = Api(
    key=32,
    name="DescribeConfigs",
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    min_version=0,
    max_version=4,
    first_flexible=4,
    served=(0, 4),
    needs=(
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
    request_elements=250_000,  # some fifty settings of thousands of topics
)
