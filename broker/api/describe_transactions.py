"""DescribeTransactions (key 65): there are none, for there is no transaction coordinator (KIP-664).

Behaviour: every id asked for is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api.describe_transactions import DescribeTransactionsResponse, TransactionState
from protocol.errors import InvalidRequest, TransactionalIdNotFound

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.describe_transactions import DescribeTransactionsRequest
    from protocol.errors import BrokerError


def handle(
    _node: Node, request: DescribeTransactionsRequest, _context: Context
) -> DescribeTransactionsResponse:
    """Find none of them."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _failed(name, TransactionalIdNotFound() if name else InvalidRequest())
            for name in request.transactional_ids
        ]
    )


def _failed(name: str, error: BrokerError) -> TransactionState:
    return TransactionState(transactional_id=name, error_code=error.code, topics=[])


def refuse(
    request: DescribeTransactionsRequest, error: BrokerError
) -> DescribeTransactionsResponse:
    """Every transaction gets the error."""
    return DescribeTransactionsResponse(
        transaction_states=[_failed(name, error) for name in request.transactional_ids]
    )
