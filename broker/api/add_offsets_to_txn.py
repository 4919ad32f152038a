"""AddOffsetsToTxn (key 25): add the offsets of a group to a transaction.

Behaviour: the partition of __consumer_offsets that keeps the group joins the transaction; if there
is no such topic yet, it is created.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import fenced_since
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.add_offsets_to_txn import AddOffsetsToTxnResponse
from tidelog.protocol.transaction_log import ProducerIdAndEpoch

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
    from tidelog.protocol.errors import BrokerError

_FENCED_SINCE = 2


async def handle(
    services: Services, request: AddOffsetsToTxnRequest, context: Context
) -> AddOffsetsToTxnResponse:
    """Adds the group's partition."""
    session, require = context.session, services.authorizer.require
    transactional_id, group_id = request.transactional_id, request.group_id
    with (
        services.transactions.refusals.logged(context, transactional_id),
        fenced_since(_FENCED_SINCE, context.version),
    ):
        require(session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        require(session, Operation.READ, ResourceType.GROUP, group_id)
        await services.coordinator.runtime.topic.create()
        await services.transactions.add(
            transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [services.coordinator.partition_of(group_id)],
            0,
        )
    return AddOffsetsToTxnResponse()


def refuse(_request: AddOffsetsToTxnRequest, error: BrokerError) -> AddOffsetsToTxnResponse:
    """Returns the error."""
    return AddOffsetsToTxnResponse(error_code=error.code)
