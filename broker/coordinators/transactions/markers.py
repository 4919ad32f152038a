"""Writes the markers of a transaction into its partitions.

The marker of a partition that this broker leads is appended in the order of its appends; the leader of
another one is asked to write it (`others.py`). A partition that does not exist any more needs none. After an
error that may pass the marker is written again, until it is stored, or until it cannot be: a newer
epoch of the producer, or a newer coordinator, has ended the transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.offsets_topic import TOPIC as GROUPS_TOPIC
from tidelog.broker.coordinators.transactions import coordinator_epochs
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.partitions.lookup import check_leader
from tidelog.protocol.errors import (
    BrokerError,
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.coordinators.groups.services import Services
    from tidelog.broker.coordinators.transactions.others import OtherBrokers
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.transaction_log import ProducerIdAndEpoch
    from tidelog.storage.log.partition import Appended

log = logging.getLogger("tidelog.transactions")

_ACKS_ALL = -1
_TIMEOUT_MS = 5_000
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 2.0
_FINAL = (InvalidProducerEpoch, TransactionCoordinatorFenced)


class Markers:
    """The markers that one broker writes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._others: OtherBrokers | None = None

    @property
    def others(self) -> OtherBrokers:
        """The other brokers, to which connections are made when they are needed."""
        if self._others is None:
            from tidelog.broker.coordinators.transactions.others import OtherBrokers  # on demand

            self._others = OtherBrokers(self._services)
        return self._others

    async def close(self) -> None:
        """Ends the requests to other brokers, and the connections."""
        if self._others is not None:
            await self._others.close()

    def begin(
        self,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> Appended | asyncio.Future[Appended] | None:
        """Writes a marker if its partition is open.

        Returns the append, or a future of it; None, with nothing written, if the partition has to be
        opened. Raises what `Partitions.leader` and `Partition.append_marker` raise.
        """
        try:
            return self._append(name, producer, coordinator_epoch, is_commit=is_commit)
        except WouldBlock:
            return None

    async def write(
        self,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> None:
        """Writes a marker, and returns when it is stored.

        Raises what `Partitions.leader` and `Partition.append_marker` raise.
        """
        leader = self._other_leader(name)
        if leader is not None:
            await self.others.write_marker(
                leader, name, producer, coordinator_epoch, is_commit=is_commit
            )
            return
        await self.write_here(name, producer, coordinator_epoch, is_commit=is_commit)

    def _other_leader(self, name: TopicPartition) -> int | None:
        """Returns the other broker that leads a partition, if one does."""
        metadata = self._services.metadata
        record = metadata.image.assignment(*name)
        if record is None or record.leader in (NO_LEADER, metadata.node_id):
            return None
        return record.leader

    async def write_here(
        self,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> None:
        """Writes a marker into a partition that this broker leads, as `write` does.

        A coordinator epoch that would fence it, and was no coordinator's, is reset first.
        """
        partition = await self._services.partitions.open_leader(*name)
        try:
            await self._append_here(name, producer, coordinator_epoch, is_commit=is_commit)
        except TransactionCoordinatorFenced:
            producer_id = producer.producer_id
            if not await coordinator_epochs.reset_unknown(self._services, partition, producer_id):
                raise
            where = {"log": f"{name[0]}-{name[1]}", "producer_id": producer_id}
            log.warning("coordinator epoch reset: no coordinator has had it", extra=where)
            await self._append_here(name, producer, coordinator_epoch, is_commit=is_commit)

    async def _append_here(
        self,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> None:
        written = self._append(name, producer, coordinator_epoch, is_commit=is_commit)
        if isinstance(written, asyncio.Future):
            await written

    async def write_in_the_end(
        self,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        begun: asyncio.Future[Appended] | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Writes a marker, again and again if need be; returns False if it can never be stored.

        `begun` is what `begin` has returned, if anything. Returns False also once `goes_on` does:
        another coordinator writes the marker then.
        """
        delay_s = _FIRST_RETRY_S
        where = {"log": f"{name[0]}-{name[1]}", "producer_id": producer.producer_id}
        if begun is not None:
            with contextlib.suppress(BrokerError):  # it is written again, and the error judged then
                await begun
                return True
        while goes_on():
            try:
                await self.write(name, producer, coordinator_epoch, is_commit=is_commit)
            except _FINAL as error:
                log.error("transaction marker refused", extra={**where, "reason": error.named})
                return False
            except BrokerError as error:
                if await self._is_gone(name, error):
                    return True
                log.warning(
                    "transaction marker not written, will retry: %s", error.named, extra=where
                )
            else:
                return True
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_RETRY_S)
        return False

    async def _is_gone(self, name: TopicPartition, error: BrokerError) -> bool:
        """Returns whether an error means that there is no such partition any more."""
        if not isinstance(error, UnknownTopicOrPartition):
            return False
        try:
            await self._services.catch_up()  # the image may be older than the transaction
        except BrokerError:
            return False
        topic = self._services.metadata.image.topics.get(name[0])
        return topic is None or not 0 <= name[1] < topic.partitions

    def _append(
        self,
        name: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> Appended | asyncio.Future[Appended]:
        services = self._services
        check_leader(services.metadata, *name)
        partition = services.partitions.leader(*name)
        services.replicas.check_own_append(partition)
        appended = services.appends.append_marker(
            partition, producer, is_commit=is_commit, coordinator_epoch=coordinator_epoch
        )
        appended = services.replicas.acknowledged(partition, appended, _TIMEOUT_MS)
        if name[0] == GROUPS_TOPIC:
            self._end_in_groups(name[1], producer, appended, is_commit=is_commit)
        return appended

    def _end_in_groups(
        self,
        index: int,
        producer: ProducerIdAndEpoch,
        appended: Appended | asyncio.Future[Appended],
        *,
        is_commit: bool,
    ) -> None:
        """Ends the transaction in the groups once the marker is stored, before the future is done."""

        def end(stored: Appended) -> None:
            self._services.coordinator.offsets.transaction_ended(
                index, producer.producer_id, stored.base_offset, is_commit=is_commit
            )

        def when_done(future: asyncio.Future[Appended]) -> None:
            if not future.cancelled() and future.exception() is None:
                end(future.result())

        if isinstance(appended, asyncio.Future):
            appended.add_done_callback(when_done)
        else:
            end(appended)
