"""Heartbeat (key 12): a member reports that it is alive and asks whether the group rebalances.

Behaviour: REBALANCE_IN_PROGRESS while members join; the heartbeat counts all the same. While the
group is being loaded there is no error, as in Kafka: a restart of the broker does not affect
members.

Version notes: 1 throttle time; 3 static members; 4 flexible.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.heartbeat import HeartbeatResponse
from tidelog.protocol.group_errors import CoordinatorLoadInProgress

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.heartbeat import HeartbeatRequest
    from tidelog.protocol.errors import BrokerError


def handle(services: Services, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Records the heartbeat."""
    services.authorizer.require(
        context.session, Operation.READ, ResourceType.GROUP, request.group_id
    )
    with contextlib.suppress(CoordinatorLoadInProgress):
        services.coordinator.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    return HeartbeatResponse()


def refuse(_request: HeartbeatRequest, error: BrokerError) -> HeartbeatResponse:
    """Returns the error."""
    return HeartbeatResponse(error_code=error.code)
