"""Produce (key 0): append record sets, and acknowledge them.

Behaviour: acks 0 has no response, and an error closes the connection. acks 1 and -1 get a response
when every partition has been written (with one replica both are the same), and synced if
flush.messages requires it. Any other acks is INVALID_REQUIRED_ACKS for every partition. Each
partition succeeds or fails on its own; `admit_produce` decides which requests may append. Clients
may not write to internal topics (INVALID_TOPIC_EXCEPTION).

Version notes: 1 throttle time; 2 log append time (KIP-32); 3 transactional id, one format-2 batch
per partition; 5 log start offset; 8 record errors and message (KIP-467); 9 flexible; 10 the leader
and its address where this broker does not lead (KIP-951); 13 topic ids instead of names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.api import admission
from tidelog.broker.api.produce_parts import (
    TOPIC_IDS_SINCE,
    Part,
    answered,
    failed_in_transaction,
    failed_part,
)
from tidelog.broker.coordinators.transactions.verification import (
    Verified,
    check_one_producer,
    producer_in,
)
from tidelog.broker.network.answers import CloseConnection
from tidelog.broker.network.per_partition import FEW, few_partitions, per_partition
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.errors import KafkaStorageError
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.log.partition import Appended, Partition
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidelog.broker.api.produce_parts import Answer
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.leader_hints import Addresses
    from tidelog.broker.partitions.log_opener import Failures
    from tidelog.protocol.api.produce import ProduceRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.wire import Buffer

    Coming = frozenset[TopicPartition]  # what this broker is about to lead


ACKS_ALL = -1
_ADMITTED = (Partition, Verified)


def handle(
    services: Services, request: ProduceRequest, context: Context
) -> Answer | Coroutine[Any, Any, Answer]:
    """Appends the records of each partition separately; opens closed partitions first.

    Waits for partitions that this broker is about to lead. The others of the request are not delayed:
    their records are stored, and visible, meanwhile; only the response waits for all.
    """
    if sum(len(topic.partition_data) for topic in request.topic_data) > FEW:
        return _handle_many(services, request, context)
    if request.transactional_id is not None:
        check_one_producer(map(producer_in, _record_sets(request)))
    coming = frozenset(
        services.replicas.pending_elections.coming(_names(services, request, context.version))
    )
    closed = services.partitions.opener.closed(_names(services, request, context.version))
    if coming:
        closed = [each for each in closed if each not in coming]
    if closed:
        return _open_and_append(services, request, context, closed, coming)
    work = _Appending(services, request, context, {}, coming)
    return work.response(
        [
            few_partitions(services, "produce", work.parts(topic), work.append, work.failed)
            for topic in request.topic_data
        ]
    )


async def _handle_many(services: Services, request: ProduceRequest, context: Context) -> Answer:
    if request.transactional_id is not None:
        check_one_producer(await listed(map(producer_in, _record_sets(request))))
    names = await listed(_names(services, request, context.version))
    coming: set[TopicPartition] = set()
    closed: list[TopicPartition] = []
    for at in range(0, len(names), FEW):
        coming.update(services.replicas.pending_elections.coming(names[at : at + FEW]))
        closed += services.partitions.opener.closed(names[at : at + FEW])
        await checkpoint()
    closed = [each for each in closed if each not in coming]
    return await _open_and_append(services, request, context, closed, frozenset(coming))


def _record_sets(request: ProduceRequest) -> Iterator[Buffer]:
    """Yields the records of each partition."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield data.records or b""


def _names(services: Services, request: ProduceRequest, version: int) -> Iterator[TopicPartition]:
    """Yields the partitions to append to, if they are here."""
    for topic in request.topic_data:
        name = _name_of(services, topic, version)
        if name is not None:
            for data in topic.partition_data:
                yield name, data.index


def _name_of(services: Services, topic: TopicProduceData, version: int) -> str | None:
    """Returns the name of a topic; None if no topic has its id."""
    if version < TOPIC_IDS_SINCE:
        return topic.name
    return services.metadata.image.topic_name(topic.topic_id)


async def _open_and_append(
    services: Services,
    request: ProduceRequest,
    context: Context,
    closed: list[TopicPartition],
    coming: Coming,
) -> Answer:
    not_opened = await services.partitions.opener.open(closed) if closed else {}
    work = _Appending(services, request, context, not_opened, coming)
    answer = work.response(
        [
            await per_partition(services, "produce", work.parts(topic), work.append, work.failed)
            for topic in request.topic_data
        ]
    )
    return await answer if isinstance(answer, Coroutine) else answer


class _Appending:
    """The appends of one request, and what is known when all of them have begun."""

    def __init__(
        self,
        services: Services,
        request: ProduceRequest,
        context: Context,
        not_opened: Failures,
        coming: Coming,
    ) -> None:
        self._services, self._request = services, request
        self._pending: list[Part] = []
        self._leaders: Addresses = {}
        self.append = partial(
            _append_one, services, request, context, not_opened, coming, self._pending
        )
        self.failed = partial(failed_part, services, context, self._leaders)
        if request.transactional_id is not None:
            self.failed = partial(
                failed_in_transaction, services, context, self._leaders, request.transactional_id
            )

    def parts(self, topic: TopicProduceData) -> Iterator[Part]:
        """Yields the parts of a request that concern a topic."""
        return (Part(topic, data) for data in topic.partition_data)

    def response(
        self, results: list[list[PartitionProduceResponse]]
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Returns the response with the results of each topic; later, if an append has to wait."""
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
                )
                for topic, partitions in zip(self._request.topic_data, results, strict=True)
            ]
        )
        if self._pending:
            return _finish(
                self._services, self._request, response, self._pending, self.failed, self._leaders
            )
        return answered(self._request, response, self._leaders)


def _append_one(
    services: Services,
    request: ProduceRequest,
    context: Context,
    not_opened: Failures,
    coming: Coming,
    pending: list[Part],
    each: Part,
) -> PartitionProduceResponse:
    """Appends to one partition, or adds it to those that are pending."""
    version = context.header.api_version
    admitted: Partition | Verified | Awaitable[Partition | Verified]
    if coming and (name := (_name_of(services, each.topic, version), each.data.index)) in coming:
        admitted = _admitted_when_led(services, request, each, context, name)
    else:
        admitted = _admitted(services, request, each, context, not_opened)
    if isinstance(admitted, _ADMITTED):
        appended = _append_to(services, request, admitted, each, version)
        if isinstance(appended, Appended):
            return each.done(appended)
        each.pending = _checked_again(services, request, each, appended)
    else:
        work = _append_when_admitted(services, request, admitted, each, version)
        each.pending = asyncio.ensure_future(services.scheduler.in_slices(work))
    pending.append(each)
    return each.result


def _admitted(
    services: Services,
    request: ProduceRequest,
    wanted: Part,
    context: Context,
    not_opened: Failures,
) -> Partition | Verified | asyncio.Future[Verified]:
    """Returns the partition to append to, or a future of it. Raises the error if that is refused."""
    topic, index = wanted.topic, wanted.data.index
    by_id = context.version >= TOPIC_IDS_SINCE
    try:
        return admission.admit_produce(
            services,
            context.session,
            topic.topic_id if by_id else topic.name,
            index,
            request.acks,
            request.transactional_id,
            wanted.data.records or b"",
            context.version,
        )
    except WouldBlock:
        name = services.metadata.topic_name(topic.topic_id) if by_id else topic.name
        failure = not_opened.get((name, index))
        raise failure or KafkaStorageError(f"{name}-{index} is not open yet") from None


def _append_to(
    services: Services,
    request: ProduceRequest,
    admitted: Partition | Verified,
    wanted: Part,
    version: int,
) -> Appended | asyncio.Future[Appended]:
    """Appends records to an admitted partition.

    Returns the result if the acks of the request are satisfied already, else a future of it.
    """
    partition, guard = (
        (admitted, None)
        if isinstance(admitted, Partition)
        else (admitted.partition, admitted.guard)
    )
    wanted.partition = partition
    waits, records = request.acks != 0, wanted.data.records or b""
    appended = services.appends.append(partition, records, version, waits=waits, guard=guard)
    if request.acks == ACKS_ALL:
        return services.replicas.acknowledged(partition, appended, request.timeout_ms)
    return appended


def _checked_again(
    services: Services, request: ProduceRequest, wanted: Part, pending: asyncio.Future[Appended]
) -> asyncio.Future[Appended]:
    """Returns a future that also fails if this broker does not lead any more when the append is done.

    With acks=all the append checks that itself.
    """
    if request.acks == 1 and wanted.partition is not None:
        return services.replicas.acknowledged_by_leader(wanted.partition, pending)
    return pending


async def _admitted_when_led(
    services: Services,
    request: ProduceRequest,
    wanted: Part,
    context: Context,
    name: TopicPartition,
) -> Partition | Verified:
    """Returns the partition to append to when this broker leads it, or another one does.

    Raises what `_admitted` raises.
    """
    await services.replicas.pending_elections.led([name])
    admitted = _admitted(
        services, request, wanted, context, await services.partitions.opener.open([name])
    )
    return admitted if isinstance(admitted, _ADMITTED) else await admitted


async def _append_when_admitted(
    services: Services,
    request: ProduceRequest,
    admitted: Awaitable[Partition | Verified],
    wanted: Part,
    version: int,
) -> Appended:
    """Appends after another broker has verified the request, or this one has become the leader.

    Many partitions may wait for the same, and others have their turn between their appends. Raises
    NotLeaderOrFollower if this broker does not lead any more by then.
    """
    found = await admitted
    await checkpoint()
    admission.admit_again(
        services, found.partition if isinstance(found, Verified) else found, request.acks
    )
    appended = _append_to(services, request, found, wanted, version)
    if isinstance(appended, Appended):
        return appended
    return await _checked_again(services, request, wanted, appended)


async def _finish(
    services: Services,
    request: ProduceRequest,
    response: ProduceResponse,
    pending: list[Part],
    failed: Callable[[Part, BrokerError], PartitionProduceResponse],
    leaders: Addresses,
) -> Answer:
    """Waits for the appends that run in a thread or wait for the disk."""

    def finish(each: Part) -> PartitionProduceResponse:
        assert each.pending is not None
        return each.done(each.pending.result())

    await asyncio.gather(
        *(each.pending for each in pending if each.pending), return_exceptions=True
    )
    try:
        await per_partition(services, "produce", pending, finish, failed)
    finally:
        # An error's traceback refers to this frame, and this frame to the error. Without the future
        # there is no cycle, so the append's decompressed records are freed at once.
        for each in pending:
            each.pending = None
    return answered(request, response, leaders)


async def refuse(request: ProduceRequest, error: BrokerError) -> ProduceResponse:
    """Returns the error for every partition."""
    if request.acks == 0:
        raise CloseConnection(f"acks=0 and {error.code.name}: {error.message}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=await listed(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=error.code,
                        error_message=error.message,
                        base_offset=-1,
                        log_append_time_ms=NO_TIMESTAMP,
                        log_start_offset=-1,
                    )
                    for data in topic.partition_data
                ),
            )
            for topic in request.topic_data
        ]
    )
