"""FindCoordinator (key 10): who coordinates a group or a transaction.

Behaviour: nobody does yet. A group gets COORDINATOR_NOT_AVAILABLE, which clients with assigned partitions
tolerate; a transaction gets INVALID_REQUEST, which a producer reports instead of retrying for ever.

Version notes: 0 names this broker: the Java consumers of 0.9 and 0.10, which send it, read nothing before
they have a coordinator, not even assigned partitions; 1 key type, error message, throttle time; 3 flexible;
4 several keys in one request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.api.find_coordinator import Coordinator, FindCoordinatorResponse
from protocol.errors import CoordinatorNotAvailable, InvalidRequest

log = logging.getLogger("tidelog.groups")

if TYPE_CHECKING:
    from broker.context import Context
    from broker.node import Node
    from protocol.api.find_coordinator import FindCoordinatorRequest
    from protocol.errors import BrokerError

_GROUP = 0
_SEVERAL_KEYS_SINCE = 4


def handle(
    node: Node, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Say that there is none, and why; the oldest version gets this broker."""
    if context.version == 0:
        host, port = context.connection.listener.advertised
        return FindCoordinatorResponse(node_id=node.config.node_id, host=host, port=port)
    error: BrokerError
    if request.key_type == _GROUP:
        error = CoordinatorNotAvailable("consumer groups are not served by this broker")
        if not context.connection.told_no_groups:  # once: clients ask again and again
            context.connection.told_no_groups = True
            log.warning(
                "a client waits for a consumer group: not served, it will wait for ever",
                extra={"client_id": context.header.client_id, "peer": context.connection.peer},
            )
    else:
        error = InvalidRequest("transactions are not served by this broker")
    if context.version >= _SEVERAL_KEYS_SINCE:
        return _none_for_each(request, error)
    return _none(error)


def _none(error: BrokerError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, host="", port=-1
    )


def _none_for_each(request: FindCoordinatorRequest, error: BrokerError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=-1,
                host="",
                port=-1,
                error_code=error.code,
                error_message=error.message,
            )
            for key in request.coordinator_keys
        ]
    )


def refuse(request: FindCoordinatorRequest, error: BrokerError) -> FindCoordinatorResponse:
    """No coordinator, for the key or for every key."""
    return _none_for_each(request, error) if request.coordinator_keys else _none(error)
