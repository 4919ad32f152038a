"""FindCoordinator (key 10): the coordinator of a group or a transaction.

Behaviour: this broker coordinates every group. Transactions are not served: INVALID_REQUEST, which
a producer reports instead of retrying for ever. The request creates and reads nothing.

Version notes: 0 groups only; 1 key type, error message, throttle time; 3 flexible; 4 several keys
in one request; 6 share groups, which are INVALID_REQUEST, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition
from protocol.acl import Operation, ResourceType
from protocol.api.find_coordinator import Coordinator, FindCoordinatorResponse
from protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.find_coordinator import FindCoordinatorRequest
    from protocol.errors import BrokerError

_GROUP = 0
_SEVERAL_KEYS_SINCE = 4
_NO_ERROR = "NONE"  # Kafka's message if there is no error


def handle(
    node: Node, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Returns this broker, with the address of the listener that received the request."""
    if context.version > 0 and request.key_type != _GROUP:
        return refuse(request, InvalidRequest("transactions are not served by this broker"))
    host, port = context.connection.listener.advertised
    node_id = node.config.node_id
    if context.version < _SEVERAL_KEYS_SINCE:
        node.authorizer.require(
            context.session, Operation.DESCRIBE, ResourceType.GROUP, request.key
        )
        text = _NO_ERROR if context.version > 0 else None
        return FindCoordinatorResponse(node_id=node_id, host=host, port=port, error_message=text)

    def find(key: str) -> Coordinator:
        node.authorizer.require(context.session, Operation.DESCRIBE, ResourceType.GROUP, key)
        return Coordinator(key=key, node_id=node_id, host=host, port=port)

    return FindCoordinatorResponse(
        coordinators=per_partition(
            node, "find_coordinator", request.coordinator_keys, find, _none_for_key
        )
    )


def _none(error: BrokerError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, host="", port=-1
    )


def _none_for_key(key: str, error: BrokerError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=error.code,
        error_message=error.message,
    )


def refuse(request: FindCoordinatorRequest, error: BrokerError) -> FindCoordinatorResponse:
    """Returns no coordinator, for the key or for every key."""
    if not request.coordinator_keys:
        return _none(error)
    return FindCoordinatorResponse(
        coordinators=[_none_for_key(key, error) for key in request.coordinator_keys]
    )
