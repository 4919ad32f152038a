"""InitProducerId (key 22): a producer id and epoch for an idempotent producer.

Behaviour: without a transactional id every call gets a new producer id with epoch 0, as in Kafka.
The ids come from blocks that the metadata store allocates, so no id is given twice, even across
restarts. With a transactional id the error is INVALID_REQUEST: there is no transaction coordinator.

Version notes: 2 flexible; 3 the producer may name the id and epoch it had; 4 PRODUCER_FENCED; 5
KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.acl import Operation, ResourceType
from protocol.api.init_producer_id import InitProducerIdResponse
from protocol.errors import ClusterAuthorizationFailed, InvalidRequest

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.init_producer_id import InitProducerIdRequest
    from protocol.errors import BrokerError


async def handle(
    node: Node, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    """Returns a new producer id."""
    session, authorizer = context.session, node.authorizer
    if request.transactional_id is not None:
        authorizer.require(
            session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        raise InvalidRequest("transactions are not served by this broker")
    if not (
        authorizer.allows_on_cluster(session, Operation.IDEMPOTENT_WRITE)
        or authorizer.allows_on_any(session, Operation.WRITE, ResourceType.TOPIC)
    ):
        raise ClusterAuthorizationFailed(f"{session.principal} may not write to any topic")
    return InitProducerIdResponse(producer_id=await node.next_producer_id(), producer_epoch=0)


def refuse(_request: InitProducerIdRequest, error: BrokerError) -> InitProducerIdResponse:
    """Returns the error without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
