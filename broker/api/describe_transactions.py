"""DescribeTransactions (key 65): without a transaction coordinator there are none (KIP-664).

Behaviour: every requested id is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition
from protocol.acl import Operation, ResourceType
from protocol.api.describe_transactions import DescribeTransactionsResponse, TransactionState
from protocol.errors import InvalidRequest, TransactionalIdNotFound

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.describe_transactions import DescribeTransactionsRequest
    from protocol.errors import BrokerError


def handle(
    node: Node, request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse:
    """Returns an error for every id."""

    def find(name: str) -> TransactionState:
        node.authorizer.require(
            context.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name
        )
        raise TransactionalIdNotFound if name else InvalidRequest

    return DescribeTransactionsResponse(
        transaction_states=per_partition(
            node, "describe_transactions", request.transactional_ids, find, _failed
        )
    )


def _failed(name: str, error: BrokerError) -> TransactionState:
    return TransactionState(transactional_id=name, error_code=error.code, topics=[])


def refuse(
    request: DescribeTransactionsRequest, error: BrokerError
) -> DescribeTransactionsResponse:
    """Returns the error for every transaction."""
    return DescribeTransactionsResponse(
        transaction_states=[_failed(name, error) for name in request.transactional_ids]
    )
