"""AddPartitionsToTxn (key 24): add partitions to a transaction before it writes to them (KIP-98).

v3 flexible; v4 several transactions in one request of a broker (KIP-890); v5 same bytes, new error
codes.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class AddPartitionsToTxnTopic(Message):
    """Partitions of one topic."""

    name: String = since(0)
    partitions: list[Int32] = since(0)


class AddPartitionsToTxnTransaction(Message):
    """One of several transactions; `verify_only` only checks whether it has the partitions."""

    transactional_id: String = since(4)
    producer_id: Int64 = since(4)
    producer_epoch: Int16 = since(4)
    verify_only: Bool = since(4)
    topics: list[AddPartitionsToTxnTopic] = since(4)


class AddPartitionsToTxnRequest(Message):
    """Add partitions to one transaction (to v3) or to several (from v4)."""

    transactions: list[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: String = since(0, until=3)
    v3_and_below_producer_id: Int64 = since(0, until=3)
    v3_and_below_producer_epoch: Int16 = since(0, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, until=3)


class AddPartitionsToTxnPartitionResult(Message):
    """Whether one partition was added."""

    partition_index: Int32 = since(0)
    partition_error_code: Int16 = since(0)


class AddPartitionsToTxnTopicResult(Message):
    """The results for one topic."""

    name: String = since(0)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = since(0)


class AddPartitionsToTxnResult(Message):
    """The results for one of several transactions."""

    transactional_id: String = since(4)
    topic_results: list[AddPartitionsToTxnTopicResult] = since(4)


class AddPartitionsToTxnResponse(Message):
    """The result for every partition."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(0, until=3)


API = Api(
    key=24,
    name="AddPartitionsToTxn",
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
    min_version=0,
    max_version=5,
    first_flexible=3,
    served=(0, 5),
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.WRITE, ResourceType.TOPIC),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
)
