"""InitProducerId (key 22): an identity for an idempotent producer.

Behaviour: without a transactional id every call gets a fresh producer id with epoch 0, as Kafka gives
it; ids come from blocks the metadata store hands out, so none is given twice, not across restarts.
With a transactional id the answer is INVALID_REQUEST: there is no transaction coordinator.

Version notes: 2 flexible; 3 the producer may name the id and epoch it had; 4 PRODUCER_FENCED; 5 KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api.init_producer_id import InitProducerIdResponse
from protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.init_producer_id import InitProducerIdRequest
    from protocol.errors import BrokerError


async def handle(
    node: Node, request: InitProducerIdRequest, _context: Context
) -> InitProducerIdResponse:
    """Give out a producer id."""
    if request.transactional_id is not None:
        raise InvalidRequest("transactions are not served by this broker")
    return InitProducerIdResponse(producer_id=await node.next_producer_id(), producer_epoch=0)


def refuse(_request: InitProducerIdRequest, error: BrokerError) -> InitProducerIdResponse:
    """No id, the error."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
