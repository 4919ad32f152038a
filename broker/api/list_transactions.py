"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Behaviour: every id that matches all filters and that the client may describe. The response names the
state filters that are not the name of a state; if no other filter of that kind is left, nothing
matches. A pattern that is not a regular expression is INVALID_REGULAR_EXPRESSION. While ids are being
read, the error is COORDINATOR_LOAD_IN_PROGRESS.

Version notes: 1 filter by age (KIP-994); 2 by a pattern, which the whole id must match (KIP-1152).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protocol.acl import Operation, ResourceType
from protocol.api.list_transactions import ListTransactionsResponse, TransactionState
from protocol.errors import InvalidRegularExpression
from protocol.transaction_log import State

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from broker.transactions.transaction import Transaction
    from protocol.api.list_transactions import ListTransactionsRequest
    from protocol.errors import BrokerError

_STATES = frozenset(state.word for state in State)


def handle(
    node: Node, request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse:
    """Lists the ids that match."""
    pattern = _compiled(request.transactional_id_pattern)
    now_ms = node.clock.now_ms()

    def is_wanted(transaction: Transaction) -> bool:
        metadata = transaction.metadata
        age_ms = now_ms - metadata.start_ms if metadata.start_ms >= 0 else -1
        return (
            (not request.state_filters or transaction.state.word in request.state_filters)
            and (
                not request.producer_id_filters
                or metadata.producer_id in request.producer_id_filters
            )
            and (request.duration_filter < 0 or age_ms > request.duration_filter)
            and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
            and node.authorizer.allows(
                context.session,
                Operation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                transaction.transactional_id,
            )
        )

    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in _STATES],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.metadata.producer_id,
                transaction_state=each.state.word,
            )
            for each in node.transactions.all()
            if is_wanted(each)
        ],
    )


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    """Returns a pattern; None for none and for an empty one. Raises InvalidRegularExpression."""
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRegularExpression(f"pattern {pattern!r}: {error}") from None


def refuse(_request: ListTransactionsRequest, error: BrokerError) -> ListTransactionsResponse:
    """Returns the error at the top."""
    return ListTransactionsResponse(
        error_code=error.code, unknown_state_filters=[], transaction_states=[]
    )
