"""ListTransactions (key 66): without a transaction coordinator there are none (KIP-664).

Behaviour: the response names the state filters that are not the name of a state. A pattern that is
not a regular expression is INVALID_REGULAR_EXPRESSION.

Version notes: 1 filter by age (KIP-994); 2 by a pattern (KIP-1152).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protocol.api.list_transactions import ListTransactionsResponse
from protocol.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.list_transactions import ListTransactionsRequest
    from protocol.errors import BrokerError

_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(
    _node: Node, request: ListTransactionsRequest, _context: Context
) -> ListTransactionsResponse:
    """Returns no transactions."""
    pattern = request.transactional_id_pattern
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidRegularExpression(f"pattern {pattern!r}: {error}") from None
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in _STATES],
        transaction_states=[],
    )


def refuse(_request: ListTransactionsRequest, error: BrokerError) -> ListTransactionsResponse:
    """Returns the error at the top."""
    return ListTransactionsResponse(
        error_code=error.code, unknown_state_filters=[], transaction_states=[]
    )
