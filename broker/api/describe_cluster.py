"""DescribeCluster (key 60): the brokers, the controller and the cluster id (KIP-700).

Behaviour: the addresses are the advertised addresses of the listener that received the request. Brokers
that are fenced, or have no session, are left out unless the request includes fenced brokers; those without a
session have no address. A request for controllers (endpoint type 2) is
MISMATCHED_ENDPOINT_TYPE, as on every broker's listener; any other type is
UNSUPPORTED_ENDPOINT_TYPE.

Version notes: 1 the type of endpoint (KIP-919); 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.listed_brokers import listed_brokers
from tidelog.broker.security.authorizer import CLUSTER_NAME, NOT_ASKED
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from tidelog.protocol.errors import MismatchedEndpointType, UnsupportedEndpointType

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_cluster import DescribeClusterRequest
    from tidelog.protocol.errors import BrokerError

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    services: Services, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    """Describes the cluster."""
    if request.endpoint_type == _CONTROLLERS:
        raise MismatchedEndpointType("this listener is for brokers, and controllers are asked for")
    if request.endpoint_type != _BROKERS:
        raise UnsupportedEndpointType(f"there is no endpoint of type {request.endpoint_type}")
    listed = listed_brokers(services, context, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        cluster_id=services.metadata.image.cluster_id,
        controller_id=listed.controller,
        brokers=[
            DescribeClusterBroker(
                broker_id=each.broker,
                host=each.host,
                port=each.port,
                rack=each.rack,
                is_fenced=each.is_fenced,
            )
            for each in listed.brokers
        ],
        cluster_authorized_operations=_operations(services, context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _operations(services: Services, context: Context) -> int:
    """Returns the client's authorized operations; none if it may not describe the cluster."""
    if not services.authorizer.allows_on_cluster(context.session, Operation.DESCRIBE):
        return 0
    return services.authorizer.operations(context.session, ResourceType.CLUSTER, CLUSTER_NAME)


def refuse(_request: DescribeClusterRequest, error: BrokerError) -> DescribeClusterResponse:
    """Returns the error at the top."""
    return DescribeClusterResponse(error_code=error.code, error_message=error.message, brokers=[])
