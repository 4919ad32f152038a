"""What a broker asks of others for transactions: to write markers, and whether one has a partition.

One connection to each broker, made when it is first needed and again after it broke. Markers for one
broker that come while a request is under way go together in the next one. Nothing is retried here:
a broker that cannot be asked is an error after which the caller asks the leader of then.

Imported when another broker is first needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.client.errors import ClientError
from tidelog.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.protocol.error_class import error_class
from tidelog.protocol.errors import BrokerError, NotLeaderOrFollower, UnknownServerError
from tidelog.protocol.group_errors import CoordinatorNotAvailable
from tidelog.protocol.sender import NO_TAGS

if TYPE_CHECKING:
    from tidelog.broker.coordinators.services import Services
    from tidelog.client.async_connection import AsyncConnection
    from tidelog.protocol.message import Message
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.transaction_log import ProducerIdAndEpoch

_CONNECT_S = 5.0
_ANSWER_S = 10.0  # a marker waits for replicas half as long; the leader of then is asked again
_VERIFIES_SINCE = 4
_MARKERS_SINCE = 1


class _Marker(NamedTuple):
    """A marker that waits to be sent, and the future of its outcome."""

    marker: WritableTxnMarker
    written: asyncio.Future[None]


class OtherBrokers:
    """The brokers of a cluster beside this one."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._connections: dict[int, asyncio.Task[AsyncConnection]] = {}
        self._markers: dict[int, list[_Marker]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Ends what is under way, and the connections."""
        tasks = [*self._senders.values(), *self._connections.values()]
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if outcome is not None and not isinstance(outcome, BaseException):
                outcome.close()
        self._connections.clear()

    async def write_marker(
        self,
        broker: int,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> None:
        """Sends a marker to the leader of a partition; returns when it is stored there.

        Raises the leader's error, and NotLeaderOrFollower if the broker cannot be asked.
        """
        topic, index = name
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=is_commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=coordinator_epoch,
        )
        loop = asyncio.get_running_loop()
        waiting = _Marker(marker, loop.create_future())
        self._markers.setdefault(broker, []).append(waiting)
        if broker not in self._senders:
            self._senders[broker] = loop.create_task(self._send_markers(broker))
        await waiting.written

    async def _send_markers(self, broker: int) -> None:
        """Sends what waits for a broker, until nothing does."""
        try:
            await self._send_waiting(broker)
        finally:  # in the same step that found nothing: the next marker starts a new task
            del self._senders[broker]

    async def _send_waiting(self, broker: int) -> None:
        """Sends all markers for a broker that wait, and those that come meanwhile in the next request."""
        while waiting := self._markers.pop(broker, None):
            request = WriteTxnMarkersRequest(markers=[each.marker for each in waiting])
            try:
                answer = await self._ask(broker, request, apis.WRITE_TXN_MARKERS, _MARKERS_SINCE)
                results = [one.topics[0].partitions[0].error_code for one in answer.markers]
                if len(results) != len(waiting):
                    raise LookupError(f"{len(waiting)} markers have {len(results)} results")
            except (ClientError, OSError, LookupError) as error:
                failure = NotLeaderOrFollower(f"broker {broker} cannot be asked: {error}")
                for each in waiting:
                    if not each.written.done():
                        each.written.set_exception(failure)
                continue
            for each, code in zip(waiting, results, strict=True):
                if each.written.done():
                    continue
                if code:
                    each.written.set_exception(_error(code, broker))
                else:
                    each.written.set_result(None)

    async def check_partition(
        self,
        broker: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        name: TopicPartition,
        *,
        adds: bool,
    ) -> None:
        """Asks a coordinator whether a transaction has a partition, or to add it.

        Raises the coordinator's error, and CoordinatorNotAvailable if it cannot be asked.
        """
        topic, index = name
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=not adds,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        try:
            answer = await self._ask(broker, request, apis.ADD_PARTITIONS_TO_TXN, _VERIFIES_SINCE)
            code = answer.error_code
            if not code:
                (result,) = answer.results_by_transaction[0].topic_results
                code = result.results_by_partition[0].partition_error_code
        except (ClientError, OSError, LookupError, ValueError) as error:
            raise CoordinatorNotAvailable(f"broker {broker} cannot be asked: {error}") from None
        if code:
            raise _error(code, broker)

    async def _ask(self, broker: int, request: Message, key: int, least_version: int) -> Any:
        """Asks a broker. Raises ClientError and OSError."""
        connecting = self._connections.get(broker)
        if connecting is None or (connecting.done() and self._is_over(connecting, broker)):
            connecting = asyncio.get_running_loop().create_task(self._connect(broker))
            self._connections[broker] = connecting
        connection = await asyncio.shield(connecting)
        if key == apis.WRITE_TXN_MARKERS and connection.tags == NO_TAGS:
            raise ClientError("without a session this broker cannot prove that markers are its own")
        asked = connection.ask(request, key, timeout_s=_ANSWER_S, least_version=least_version)
        # Its timeout needs a task, and a client's request has none until it waits (broker/timer.py).
        return await asyncio.get_running_loop().create_task(asked)

    async def _connect(self, broker: int) -> AsyncConnection:
        replicas = self._services.replicas
        endpoint = replicas.endpoint(broker)
        if endpoint is None:
            raise ClientError("it is not registered")
        name = f"broker-{self._services.config.cluster.node_id}-transactions"
        tags = replicas.senders.tags_for(broker)
        return await open_connection(
            endpoint.host, endpoint.port, name, timeout_s=_CONNECT_S, tags=tags
        )

    def _is_over(self, connecting: asyncio.Task[AsyncConnection], broker: int) -> bool:
        """Returns whether another connection is needed: this one is broken, or of an earlier session."""
        if connecting.cancelled() or connecting.exception() is not None:
            return True
        connection, replicas = connecting.result(), self._services.replicas
        if connection.tags != replicas.senders.tags_for(broker):
            connection.close()
        return connection.is_closed


def _error(code: int, broker: int) -> BrokerError:
    """Returns the error that another broker has answered."""
    raised = error_class(code)
    if raised is None:
        return UnknownServerError(
            f"broker {broker} answers with error {code}, which has no name here"
        )
    return raised(f"broker {broker} refuses: {raised.code.sentence}")
