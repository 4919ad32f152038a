"""ListTransactions (key 66): the transactions of a coordinator (KIP-664).

v1 filter by duration (KIP-994); v2 filter by pattern (KIP-1152). Flexible in every version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class ListTransactionsRequest(Message):
    """List the transactions that match every filter; an empty filter matches all."""

    state_filters: list[String] = since(0)
    producer_id_filters: list[Int64] = since(0)
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: String | None = since(2, default=None)


class TransactionState(Message):
    """One transaction."""

    transactional_id: String = since(0)
    producer_id: Int64 = since(0)
    transaction_state: String = since(0)


class ListTransactionsResponse(Message):
    """The transactions, and the filters that are not the name of a state."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    unknown_state_filters: list[String] = since(0)
    transaction_states: list[TransactionState] = since(0)


API = Api(
    key=66,
    name="ListTransactions",
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    min_version=0,
    max_version=2,
    first_flexible=0,
    served=(0, 2),
    needs=(Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),),
)
