"""SyncGroup (key 14): the leader sends the assignments, every member receives its own.

Behaviour: the response is sent when the leader's assignment is stored; see `broker.coordinators.groups`.
While the group is being loaded the error is REBALANCE_IN_PROGRESS, as in Kafka, because a consumer gives
up at COORDINATOR_LOAD_IN_PROGRESS. A group too large for a record of __consumer_offsets is
MESSAGE_TOO_LARGE, at which a consumer gives up, too (Kafka: UNKNOWN_SERVER_ERROR): the group would
be too large again the next time.

Version notes: 3 static members; 4 flexible; 5 protocol type and name, which must be the group's
(KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.sync_group import SyncGroupResponse
from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    InconsistentGroupProtocol,
    RebalanceInProgress,
)

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.sync_group import SyncGroupRequest
    from tidelog.protocol.errors import BrokerError

_PROTOCOLS_SINCE = 5


async def handle(
    services: Services, request: SyncGroupRequest, context: Context
) -> SyncGroupResponse:
    """Stores the assignments of the leader, or waits for the member's own."""
    services.authorizer.require(
        context.session, Operation.READ, ResourceType.GROUP, request.group_id
    )
    protocols = (request.protocol_type, request.protocol_name)
    if context.version >= _PROTOCOLS_SINCE and None in protocols:
        raise InconsistentGroupProtocol("protocol type and name are needed")
    try:
        synced = await services.coordinator.sync(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            protocols,
            dict(
                await listed(
                    (each.member_id, bytes(each.assignment)) for each in request.assignments
                )
            ),
        )
    except CoordinatorLoadInProgress as error:
        raise RebalanceInProgress(error.message) from None
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def refuse(_request: SyncGroupRequest, error: BrokerError) -> SyncGroupResponse:
    """Returns the error."""
    return SyncGroupResponse(error_code=error.code, assignment=b"")
