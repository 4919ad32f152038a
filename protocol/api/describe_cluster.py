"""DescribeCluster (key 60): the brokers, the controller, the cluster id (KIP-700).

v1 brokers or controllers (KIP-919); v2 fenced brokers (KIP-1073). Flexible in every version.
"""

from __future__ import annotations

from tidelog.protocol.schema import Api, Bool, Int8, Int16, Int32, Message, String, since


class DescribeClusterRequest(Message):
    """Ask for the members of the cluster; `endpoint_type` 1 means brokers, 2 controllers."""

    include_cluster_authorized_operations: Bool = since(0)
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2)


class DescribeClusterBroker(Message):
    """One broker and its address."""

    broker_id: Int32 = since(0)
    host: String = since(0)
    port: Int32 = since(0)
    rack: String | None = since(0, default=None)
    is_fenced: Bool = since(2)


class DescribeClusterResponse(Message):
    """The brokers, the controller and the cluster id."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = since(0)
    controller_id: Int32 = since(0, default=-1)
    brokers: list[DescribeClusterBroker] = since(0)
    cluster_authorized_operations: Int32 = since(0, default=-(2**31))


API = Api(
    key=60,
    name="DescribeCluster",
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    min_version=0,
    max_version=2,
    first_flexible=0,
    served=(0, 2),
    needs=(),
)
