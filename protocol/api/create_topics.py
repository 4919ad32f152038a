"""CreateTopics (key 19): create topics.

v1 validate only, error messages; v2 throttle time; v4 -1 for the broker's default partitions and
replicas (KIP-464); v5 flexible, and the settings in the response (KIP-525); v6 quotas may refuse;
v7 topic ids in the response (KIP-516).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int8, Int16, Int32, Message, String, Uuid, since


class CreatableReplicaAssignment(Message):
    """The brokers that will hold one partition; the first is its leader."""

    partition_index: Int32 = since(0)
    broker_ids: list[Int32] = since(0)


class CreatableTopicConfig(Message):
    """One setting of a new topic."""

    name: String = since(0)
    value: String | None = since(0, default=None)


class CreatableTopic(Message):
    """One topic to create, with numbers or with explicit assignments."""

    name: String = since(0)
    num_partitions: Int32 = since(0)
    replication_factor: Int16 = since(0)
    assignments: list[CreatableReplicaAssignment] = since(0)
    configs: list[CreatableTopicConfig] = since(0)


class CreateTopicsRequest(Message):
    """Create these topics, or only validate the request."""

    topics: list[CreatableTopic] = since(0)
    timeout_ms: Int32 = since(0, default=60000)
    validate_only: Bool = since(1)


class CreatableTopicConfigs(Message):
    """One setting of the new topic, and its source."""

    name: String = since(5)
    value: String | None = since(5, default=None)
    read_only: Bool = since(5)
    config_source: Int8 = since(5, default=-1, ignorable=True)
    is_sensitive: Bool = since(5)


class CreatableTopicResult(Message):
    """One created topic, or the error; numbers that are not given are -1."""

    name: String = since(0)
    topic_id: Uuid = since(7, ignorable=True)
    error_code: Int16 = since(0)
    error_message: String | None = since(1, default=None, ignorable=True)
    topic_config_error_code: Int16 = since(5, tag=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = since(5, ignorable=True)


class CreateTopicsResponse(Message):
    """The result for every topic."""

    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: list[CreatableTopicResult] = since(0)


API = Api(
    key=19,
    name="CreateTopics",
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    min_version=0,
    max_version=7,
    first_flexible=5,
    served=(0, 7),
    needs=(
        Need(Operation.CREATE, ResourceType.TOPIC),
        Need(Operation.CREATE, ResourceType.CLUSTER, by_handler=True),
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    ),
    request_bytes=4 << 20,
    request_elements=250_000,  # some fifty settings of thousands of topics
)
