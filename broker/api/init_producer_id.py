"""InitProducerId (key 22): a producer id and epoch for an idempotent producer.

Behaviour: without a transactional id every call gets a new producer id with epoch 0, as in Kafka.
The ids come from blocks that the metadata store allocates, so no id is allocated twice, even across
restarts. With a transactional id its coordinator returns the id and epoch; another broker returns
NOT_COORDINATOR. A new transactional id beyond max.transactional.ids is POLICY_VIOLATION.

Version notes: 2 flexible; 3 the producer may name the id and epoch it had; 4 PRODUCER_FENCED instead
of INVALID_PRODUCER_EPOCH; 5 KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import fenced_since
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.init_producer_id import InitProducerIdResponse
from tidelog.protocol.errors import ClusterAuthorizationFailed, InvalidRequest
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.protocol.transaction_log import NO_EPOCH, ProducerIdAndEpoch

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.init_producer_id import InitProducerIdRequest
    from tidelog.protocol.errors import BrokerError


_FENCED_SINCE = 4


async def handle(
    services: Services, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    """Returns a new producer id, or the id and epoch of a transactional id."""
    session, authorizer = context.session, services.authorizer
    transactional_id = request.transactional_id
    if transactional_id is not None:
        with services.transactions.refusals.logged(context, transactional_id):
            authorizer.require(
                session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
            )
            return await _of_transactions(services, transactional_id, request, context.version)
    if not (
        authorizer.allows_on_cluster(session, Operation.IDEMPOTENT_WRITE)
        or authorizer.allows_on_any(session, Operation.WRITE, ResourceType.TOPIC)
    ):
        raise ClusterAuthorizationFailed(f"{session.principal} may not write to any topic")
    return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)


async def _of_transactions(
    services: Services, transactional_id: str, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    """Returns the id and epoch of a transactional id, which fences every other producer."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (producer.producer_id == NO_PRODUCER_ID) != (producer.epoch == NO_EPOCH):
        raise InvalidRequest("producer id and epoch are named together, or neither is")
    known = None if producer.producer_id == NO_PRODUCER_ID else producer
    with fenced_since(_FENCED_SINCE, version):
        given = await services.transactions.init(
            transactional_id, request.transaction_timeout_ms, known
        )
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch)


def refuse(_request: InitProducerIdRequest, error: BrokerError) -> InitProducerIdResponse:
    """Returns the error without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
