"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Behaviour: every id that matches all filters and that the client may describe. The response names the
state filters that are not the name of a state; if no other filter of that kind is left, nothing
matches. A pattern that is not a regular expression, or takes seconds to match, is
INVALID_REGULAR_EXPRESSION. While ids are being read, the error is COORDINATOR_LOAD_IN_PROGRESS.

Version notes: 1 filter by age (KIP-994); 2 by a pattern, which the whole id must match (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.list_transactions import ListTransactionsResponse, TransactionState
from tidelog.protocol.transaction_log import State

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.transactions.transaction import Transaction
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.list_transactions import ListTransactionsRequest
    from tidelog.protocol.errors import BrokerError

_STATES = frozenset(state.word for state in State)


async def handle(
    services: Services, request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse:
    """Lists the ids that match."""
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    now_ms = services.clock.now_ms()

    def is_wanted(transaction: Transaction) -> bool:
        metadata = transaction.metadata
        age_ms = now_ms - metadata.start_ms if metadata.start_ms >= 0 else -1
        return (
            (not states or transaction.state.word in states)
            and (not producers or metadata.producer_id in producers)
            and (request.duration_filter < 0 or age_ms > request.duration_filter)
            and services.authorizer.allows(
                context.session,
                Operation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                transaction.transactional_id,
            )
        )

    found = await listed(
        TransactionState(
            transactional_id=each.transactional_id,
            producer_id=each.metadata.producer_id,
            transaction_state=each.state.word,
        )
        for each in await listed(services.transactions.all(), is_wanted)
    )
    if request.transactional_id_pattern:
        ids = (each.transactional_id for each in found)
        matched = await services.transactions.patterns.matching(
            request.transactional_id_pattern, ids
        )
        found = [found[at] for at in matched]
    return ListTransactionsResponse(
        unknown_state_filters=await listed(request.state_filters, lambda each: each not in _STATES),
        transaction_states=found,
    )


def refuse(_request: ListTransactionsRequest, error: BrokerError) -> ListTransactionsResponse:
    """Returns the error at the top."""
    return ListTransactionsResponse(
        error_code=error.code, unknown_state_filters=[], transaction_states=[]
    )
