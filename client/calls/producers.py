"""Calls of idempotent and transactional producers. Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client import apis
from tidelog.client.cluster import TRANSACTION
from tidelog.client.errors import raise_for_code
from tidelog.client.flow import AnyBroker, Call, CoordinatorTarget, Leader
from tidelog.protocol.api import (
    add_partitions_to_txn,
    describe_producers,
    end_txn,
    init_producer_id,
)
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ProducerIdAndEpoch = tuple[int, int]


def init(
    transactional_id: str | None, *, transaction_timeout_ms: int = 60_000
) -> Call[ProducerIdAndEpoch]:
    """A producer id and its epoch. A transactional id keeps its id, and fences earlier epochs."""
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
    )

    def read(answer: Any) -> ProducerIdAndEpoch:
        raise_for_code(answer.error_code, f"producer id for {transactional_id or 'idempotence'}")
        return answer.producer_id, answer.producer_epoch

    is_bare = transactional_id is None
    target = AnyBroker() if is_bare else CoordinatorTarget(TRANSACTION, transactional_id or "")
    return Call(apis.INIT_PRODUCER_ID, request, target, read)


def last_sequence(topic: str, partition: int, producer_id: int) -> Call[int | None]:
    """The last sequence of a producer in a partition; None if the partition remembers none."""

    def value(producer: Any) -> int | None:
        return producer.last_sequence if producer.last_sequence >= 0 else None

    return _of_producer(topic, partition, producer_id, value)


def transaction_start(topic: str, partition: int, producer_id: int) -> Call[int | None]:
    """The first offset of a producer's open transaction in a partition; None if none is open.

    A transaction is open until the partition has its marker (KIP-664).
    """

    def value(producer: Any) -> int | None:
        start = producer.current_txn_start_offset
        return start if start >= 0 else None

    return _of_producer(topic, partition, producer_id, value)


def _of_producer(
    topic: str, partition: int, producer_id: int, value: Callable[[Any], int | None]
) -> Call[int | None]:
    """Returns a call for one value of an active producer; None if the partition does not know it."""
    asked = describe_producers.TopicRequest(name=topic, partition_indexes=[partition])
    request = describe_producers.DescribeProducersRequest(topics=[asked])

    def read(answer: Any) -> int | None:
        one = answer.topics[0].partitions[0]
        raise_for_code(one.error_code, f"producers of {topic}-{partition}", one.error_message)
        known = (each for each in one.active_producers if each.producer_id == producer_id)
        producer = next(known, None)
        return None if producer is None else value(producer)

    return Call(apis.DESCRIBE_PRODUCERS, request, Leader(topic, partition), read)


def add_partitions(
    transactional_id: str, producer: ProducerIdAndEpoch, topics: Mapping[str, Sequence[int]]
) -> Call[None]:
    """Adds partitions to the open transaction of a producer, given by id and epoch."""
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
            for name, partitions in topics.items()
        ],
    )

    def read(answer: Any) -> None:
        codes = [
            one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]
        # The error of partitions that were not attempted only says that another one was refused.
        reasons = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
        for code in reasons or codes:
            raise_for_code(code, f"a transaction of {transactional_id}")

    target = CoordinatorTarget(TRANSACTION, transactional_id)
    return Call(apis.ADD_PARTITIONS_TO_TXN, request, target, read)


def end(transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> Call[None]:
    """Commits or aborts the open transaction of a producer, given by id and epoch."""
    request = end_txn.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )

    def read(answer: Any) -> None:
        raise_for_code(answer.error_code, f"ending a transaction of {transactional_id}")

    return Call(apis.END_TXN, request, CoordinatorTarget(TRANSACTION, transactional_id), read)
