"""TxnOffsetCommit (key 28): store offsets of a group that count once the transaction is committed.

Behaviour: the response is sent once the offsets are in the log, where they are pending until the
marker of the transaction comes. The group's partition of __consumer_offsets must be in the
transaction. Partitions that may not be committed have their own error, and the other offsets are
stored all the same. A client that names a member is fenced by member and generation (KIP-447).

Version notes: 2 leader epochs; 3 member and generation, flexible; 4 TRANSACTION_ABORTABLE instead of
INVALID_TXN_STATE; 5 the group's partition is added to the transaction by this request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.api import admission
from tidelog.broker.coordinators.groups.committed import Commit, Committed, Committer
from tidelog.broker.coordinators.transactions import verification
from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.protocol.errors import (
    BrokerError,
    GroupAuthorizationFailed,
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)
from tidelog.protocol.transaction_log import ProducerIdAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
    )
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.producers.verification import Guard

    _Wanted = tuple[TopicPartition, TxnOffsetCommitRequestPartition]

_ABORTABLE_SINCE = 4
_ADDS_SINCE = 5
_NO_SEQUENCE = -1


async def handle(
    services: Services, request: TxnOffsetCommitRequest, context: Context
) -> TxnOffsetCommitResponse:
    """Stores the admitted offsets as pending ones of the transaction."""
    with services.transactions.refusals.logged(context, request.transactional_id):
        return await _stored(services, request, context)


async def _stored(
    services: Services, request: TxnOffsetCommitRequest, context: Context
) -> TxnOffsetCommitResponse:
    session, version = context.session, context.version
    services.authorizer.require(
        session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    )
    services.authorizer.require(session, Operation.READ, ResourceType.GROUP, request.group_id)
    now_ms = services.coordinator.offsets.now_ms()
    offsets: dict[TopicPartition, Committed] = {}
    codes: dict[TopicPartition, int] = {}

    def admit(wanted: _Wanted) -> None:
        name, partition = wanted
        metadata = partition.committed_metadata or ""
        admission.admit_commit(services, session, request.group_id, name, metadata)
        epoch = partition.committed_leader_epoch
        offsets[name] = Committed(partition.committed_offset, epoch, metadata, now_ms)

    def failed(wanted: _Wanted, error: BrokerError) -> None:
        if isinstance(error, GroupAuthorizationFailed):
            raise error
        codes[wanted[0]] = error.code

    await per_partition(services, "txn_offset_commit", _wanted(request), admit, failed)
    committer = Committer(request.member_id, request.group_instance_id, request.generation_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    verify = partial(_verify, services, request.transactional_id, producer, version)
    try:
        commit = await Commit.of_many(request.group_id, committer, offsets)
        await services.coordinator.offsets.commit_in_transaction(commit, producer, verify)
    except BrokerError as error:
        raise _as_commit_error(error, version) from None
    return await _answer(request, codes, 0)


def _wanted(request: TxnOffsetCommitRequest) -> Iterator[_Wanted]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition


async def _verify(
    services: Services,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    version: int,
    partition: Partition,
) -> Guard | None:
    return await verification.ask(
        services, partition, transactional_id, producer, _NO_SEQUENCE, adds=version >= _ADDS_SINCE
    )


def _as_commit_error(error: BrokerError, version: int) -> BrokerError:
    """Returns the error that clients of this version can handle, as Kafka does."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_SINCE:
        return InvalidTxnState(error.message)
    return error


async def _answer(
    request: TxnOffsetCommitRequest, codes: dict[TopicPartition, int], otherwise: int
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=await listed(
                    TxnOffsetCommitResponsePartition(
                        partition_index=index,
                        error_code=codes.get((topic.name, index), otherwise),
                    )
                    for index in dict.fromkeys(
                        await listed(each.partition_index for each in topic.partitions)
                    )
                ),
            )
            for topic in request.topics
        ]
    )


async def refuse(request: TxnOffsetCommitRequest, error: BrokerError) -> TxnOffsetCommitResponse:
    """Returns the error for every partition, because the response has no other field for it."""
    return await _answer(request, {}, error.code)
