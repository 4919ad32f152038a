"""EndTxn (key 26): commit or abort a transaction.

Behaviour: the response is sent when the decision is in __transaction_state and, if that takes no more than
a moment, every partition has its marker: then the next transaction starts without a retry.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; 5 the producer gets a
new epoch (transaction.version 2), and an empty transaction can be aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import fenced_since
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.end_txn import EndTxnResponse
from tidelog.protocol.transaction_log import ProducerIdAndEpoch

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.end_txn import EndTxnRequest
    from tidelog.protocol.errors import BrokerError

_FENCED_SINCE = 2
_BUMPS_SINCE = 5


async def handle(services: Services, request: EndTxnRequest, context: Context) -> EndTxnResponse:
    """Ends the transaction; returns the producer id and epoch with which the producer continues."""
    with (
        services.transactions.refusals.logged(context, request.transactional_id),
        fenced_since(_FENCED_SINCE, context.version),
    ):
        services.authorizer.require(
            context.session,
            Operation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            request.transactional_id,
        )
        continued = await services.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            2 if context.version >= _BUMPS_SINCE else 0,
            is_commit=request.committed,
        )
    return EndTxnResponse(producer_id=continued.producer_id, producer_epoch=continued.epoch)


def refuse(_request: EndTxnRequest, error: BrokerError) -> EndTxnResponse:
    """Returns the error."""
    return EndTxnResponse(error_code=error.code)
