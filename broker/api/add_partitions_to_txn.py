"""AddPartitionsToTxn (key 24): add partitions to a transaction, or verify that it has them.

Behaviour: all partitions of a transaction are added or none. If one does not exist or is forbidden,
it gets its own error, and the others OPERATION_NOT_ATTEMPTED. With `verify_only` each partition has its own
result if all of them exist.

Version notes: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; 4 several
transactions, from brokers alone, which need the right to CLUSTER_ACTION.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import fenced_since
from tidelog.broker.network.per_partition import per_partition, per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    OperationNotAttempted,
    UnknownTopicOrPartition,
)
from tidelog.protocol.transaction_log import ProducerIdAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
    from tidelog.protocol.topic_partition import TopicPartition

    Topics = list[AddPartitionsToTxnTopic]
    Results = list[AddPartitionsToTxnTopicResult]

_FENCED_SINCE = 2
_OF_BROKERS_SINCE = 4


async def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: Context
) -> AddPartitionsToTxnResponse:
    """Adds the partitions of each transaction."""
    if context.version < _OF_BROKERS_SINCE:
        transactional_id = request.v3_and_below_transactional_id
        with services.transactions.refusals.logged(context, transactional_id):
            results = await _added(
                services,
                context,
                transactional_id,
                ProducerIdAndEpoch(
                    request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
                ),
                request.v3_and_below_topics,
            )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if not services.authorizer.allows_on_cluster(context.session, Operation.CLUSTER_ACTION):
        raise ClusterAuthorizationFailed("only brokers add partitions to several transactions")
    return AddPartitionsToTxnResponse(
        results_by_transaction=await per_partition_async(
            services,
            "add_partitions_to_txn",
            request.transactions,
            partial(_one_of_several, services, context),
            _failed,
        )
    )


async def _one_of_several(
    services: Services, context: Context, asked: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    """Adds the partitions of one transaction, or verifies that it has them."""
    transactional_id = asked.transactional_id
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        results, failures = await _checked(services, asked.topics)
        if not failures:
            check = partial(services.transactions.verify, transactional_id, producer)
            results = await _each(services, asked.topics, check)
    else:
        with services.transactions.refusals.logged(context, transactional_id):
            results = await _added(services, context, transactional_id, producer, asked.topics)
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results)


async def _added(
    services: Services,
    context: Context,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Topics,
) -> Results:
    """Adds partitions to a transaction; returns the result for each. Raises an error of all of them."""
    session, version = context.session, context.version
    services.authorizer.require(
        session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )
    results, failures = await _checked(services, topics, writer=session)
    if failures:
        services.transactions.refusals.note(context, transactional_id, failures[0])
        return results
    names = await listed((topic.name, index) for topic in topics for index in topic.partitions)
    with fenced_since(_FENCED_SINCE, version):
        await services.transactions.add(
            transactional_id, producer, names, 2 if version >= _OF_BROKERS_SINCE else 0
        )
    return results


async def _checked(
    services: Services, topics: Topics, *, writer: Session | None = None
) -> tuple[Results, list[BrokerError]]:
    """Returns the result for each partition, and the errors of missing or forbidden ones.

    If there are such errors, the others are OPERATION_NOT_ATTEMPTED.
    """
    failures: list[BrokerError] = []

    def check(name: TopicPartition) -> None:
        try:
            if writer is not None:
                services.authorizer.require(writer, Operation.WRITE, ResourceType.TOPIC, name[0])
            known = services.metadata.image.topics.get(name[0])
            if known is None or not 0 <= name[1] < known.partitions:
                raise UnknownTopicOrPartition(f"there is no partition {name[0]}-{name[1]}")
        except BrokerError as error:
            failures.append(error)
            raise

    results = await _each(services, topics, check)
    if failures:
        for topic in results:
            for result in topic.results_by_partition:
                result.partition_error_code = (
                    result.partition_error_code or OperationNotAttempted.code
                )
    return results, failures


async def _each(
    services: Services, topics: Topics, check: Callable[[TopicPartition], None]
) -> Results:
    """Returns the result of a check for each partition."""

    def one(topic: str, index: int) -> AddPartitionsToTxnPartitionResult:
        check((topic, index))
        return AddPartitionsToTxnPartitionResult(partition_index=index)

    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=await per_partition(
                services,
                "add_partitions_to_txn",
                topic.partitions,
                partial(one, topic.name),
                _refused,
            ),
        )
        for topic in topics
    ]


def _refused(index: int, error: BrokerError) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error.code)


def _all_refused(topics: Topics, error: BrokerError) -> Results:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[_refused(index, error) for index in topic.partitions],
        )
        for topic in topics
    ]


def _failed(asked: AddPartitionsToTxnTransaction, error: BrokerError) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id, topic_results=_all_refused(asked.topics, error)
    )


def refuse(request: AddPartitionsToTxnRequest, error: BrokerError) -> AddPartitionsToTxnResponse:
    """Returns the error for every partition; from v4 on at the top."""
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_transaction=[],
        results_by_topic_v3_and_below=_all_refused(request.v3_and_below_topics, error),
    )
