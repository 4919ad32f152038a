"""DescribeTransactions (key 65): the state of transactions (KIP-664).

Flexible in its only version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class DescribeTransactionsRequest(Message):
    """Ask about these transactions."""

    transactional_ids: list[String] = since(0)


class TopicData(Message):
    """Partitions of one topic."""

    topic: String = since(0)
    partitions: list[Int32] = since(0)


class TransactionState(Message):
    """One transaction; times in ms."""

    error_code: Int16 = since(0)
    transactional_id: String = since(0)
    transaction_state: String = since(0)
    transaction_timeout_ms: Int32 = since(0)
    transaction_start_time_ms: Int64 = since(0)
    producer_id: Int64 = since(0)
    producer_epoch: Int16 = since(0)
    topics: list[TopicData] = since(0)


class DescribeTransactionsResponse(Message):
    """Every requested transaction."""

    throttle_time_ms: Int32 = since(0)
    transaction_states: list[TransactionState] = since(0)


API = Api(
    key=65,
    name="DescribeTransactions",
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
)
