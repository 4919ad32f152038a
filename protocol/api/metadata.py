"""Metadata (key 3): brokers, topics, partitions and their leaders.

v0 an empty list means all topics; v1 null means all, and racks, the controller and internal topics
are in the response; v2 cluster id; v3 throttle time; v4 whether to create missing topics; v5
offline replicas; v7 leader epoch (KIP-320); v8 authorized operations (KIP-430); v9 flexible; v10
topic ids (KIP-516); v11 without the cluster's operations; v12 requests may name topics by id; v13
an error for the whole response (KIP-1102).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Message, String, Uuid, since


class MetadataRequestTopic(Message):
    """One topic: by name or, if the name is null, by id."""

    topic_id: Uuid = since(10, ignorable=True)
    name: String | None = since(0, nullable=10)


class MetadataRequest(Message):
    """Ask about these topics."""

    topics: list[MetadataRequestTopic] | None = since(0, nullable=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10)
    include_topic_authorized_operations: Bool = since(8)


class MetadataResponseBroker(Message):
    """One broker and its address."""

    node_id: Int32 = since(0)
    host: String = since(0)
    port: Int32 = since(0)
    rack: String | None = since(1, default=None, ignorable=True)


class MetadataResponsePartition(Message):
    """One partition, its leader and its replicas."""

    error_code: Int16 = since(0)
    partition_index: Int32 = since(0)
    leader_id: Int32 = since(0)
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: list[Int32] = since(0)
    isr_nodes: list[Int32] = since(0)
    offline_replicas: list[Int32] = since(5, ignorable=True)


class MetadataResponseTopic(Message):
    """One topic and its partitions; the operations are a bit set, -2**31 unless asked for."""

    error_code: Int16 = since(0)
    name: String | None = since(0, nullable=12)
    topic_id: Uuid = since(10, ignorable=True)
    is_internal: Bool = since(1, ignorable=True)
    partitions: list[MetadataResponsePartition] = since(0)
    topic_authorized_operations: Int32 = since(8, default=-(2**31))


class MetadataResponse(Message):
    """The cluster as this broker knows it."""

    throttle_time_ms: Int32 = since(3, ignorable=True)
    brokers: list[MetadataResponseBroker] = since(0)
    cluster_id: String | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = since(0)
    cluster_authorized_operations: Int32 = since(8, until=10, default=-(2**31))
    error_code: Int16 = since(13, ignorable=True)


API = Api(
    key=3,
    name="Metadata",
    request=MetadataRequest,
    response=MetadataResponse,
    min_version=0,
    max_version=13,
    first_flexible=9,
    served=(0, 13),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(Operation.CREATE, ResourceType.TOPIC),
        Need(Operation.CREATE, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
)
