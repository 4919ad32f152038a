"""DescribeTransactions (key 65): the coordinator's state of transactional ids (KIP-664).

Behaviour: an id that is not known is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST. While a
transaction ends, its partitions are those that lack their marker. Topics that the client may not
describe are left out. An id that is named twice is described once: its description may be thousands of
times as long as its name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tidelog.protocol.errors import TransactionalIdNotFound

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.protocol.api.describe_transactions import DescribeTransactionsRequest
    from tidelog.protocol.errors import BrokerError


async def handle(
    services: Services, request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse:
    """Describes each id separately."""
    return DescribeTransactionsResponse(
        transaction_states=await per_partition_async(
            services,
            "describe_transactions",
            dict.fromkeys(request.transactional_ids),
            partial(_described, services, context.session),
            _failed,
        )
    )


async def _described(
    services: Services, session: Session, transactional_id: str
) -> TransactionState:
    require, allows = services.authorizer.require, services.authorizer.allows
    require(session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    transaction = services.transactions.get(transactional_id)
    if transaction is None:
        raise TransactionalIdNotFound(f"there is no transactional id {transactional_id}")
    metadata = transaction.metadata
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        if allows(session, Operation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(index)
        await checkpoint()
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.word,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.epoch,
        topics=[
            TopicData(topic=topic, partitions=sorted(topics[topic])) for topic in sorted(topics)
        ],
    )


def _failed(name: str, error: BrokerError) -> TransactionState:
    return TransactionState(transactional_id=name, error_code=error.code, topics=[])


async def refuse(
    request: DescribeTransactionsRequest, error: BrokerError
) -> DescribeTransactionsResponse:
    """Returns the error for every transaction."""
    return DescribeTransactionsResponse(
        transaction_states=await listed(_failed(name, error) for name in request.transactional_ids)
    )
