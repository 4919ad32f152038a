"""An internal topic that keeps the state of a coordinator: each key in one partition, by its hash.

The topic is created when the first key is stored. A write is durable, by the log's own flush
settings, when the call returns. The errors are those for clients of coordinators.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.records import NO_LEADER
from tidelog.protocol.errors import (
    BrokerError,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from tidelog.protocol.group_errors import CoordinatorNotAvailable, NotCoordinator
from tidelog.protocol.group_records import partition_of
from tidelog.protocol.records.plain import Plain, in_batch, written
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.ownership import Ownership
    from tidelog.broker.coordinators.services import Services
    from tidelog.protocol.transaction_log import ProducerIdAndEpoch
    from tidelog.storage.log.partition import Appended, Partition
    from tidelog.storage.log.producers.verification import Guard

    Written = tuple[bytes, bytes | None]  # key and value of a record
    Records = Sequence[Written] | Plain  # that are written into one batch
    Log = tuple[UUID | None, int]  # topic id and partition of the log a key is kept in

_PRODUCE_VERSION = 13
_RECORDS_PER_BATCH = 1_000
_NOT_AVAILABLE = (
    UnknownTopicOrPartition,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
)


class Declared(NamedTuple):
    """How the topic is created, and how long a write waits for replicas."""

    name: str
    partitions: int
    replication_factor: int
    segment_bytes: int
    compression: str
    timeout_ms: int
    min_insync: int | None = None  # None: as the broker has it


class InternalTopic:
    """The topic that holds the state of one broker's coordinator."""

    def __init__(
        self, services: Services, declared: Declared, clock: Clock, ownership: Ownership
    ) -> None:
        """`clock` stamps the records; `ownership` names the partitions that may be written."""
        self.name = declared.name
        self._declared = declared
        self._services = services
        self._clock = clock
        self._ownership = ownership
        self._creating = asyncio.Lock()

    # -- where a key is -------------------------------------------------------------------------

    @property
    def is_missing(self) -> bool:
        """Whether the topic does not exist yet."""
        return self.name not in self._services.metadata.image.topics

    def partitions(self) -> int:
        """How many partitions the topic has, or will have."""
        topic = self._services.metadata.image.topics.get(self.name)
        return self._declared.partitions if topic is None else topic.partitions

    def index_of(self, key: str) -> int:
        """Returns the partition of a key."""
        return partition_of(key, self.partitions())

    def leader_of(self, key: str) -> int:
        """Returns the broker that coordinates a key, by the metadata.

        Raises CoordinatorNotAvailable if no broker leads the key's partition.
        """
        record = self._services.metadata.image.assignment(self.name, self.index_of(key))
        if record is None or record.leader == NO_LEADER:
            raise CoordinatorNotAvailable(f"no broker leads the partition of {key}")
        return record.leader

    # -- the right to write ---------------------------------------------------------------------

    def epoch_of(self, key: str) -> int:
        """Returns the epoch in which this broker coordinates a key.

        Raises NotCoordinator, CoordinatorLoadInProgress and CoordinatorNotAvailable.
        """
        index = self.index_of(key)
        epoch = self._ownership.check(index)
        self.check_leading(index, epoch)
        return epoch

    def check_leading(self, index: int, epoch: int) -> None:
        """Checks that the log of a partition leads in an epoch now, whatever the ownership has.

        Raises NotCoordinator. A broker that was paused finds here that its lease has ended.
        """
        topic = self._services.metadata.image.topics.get(self.name)
        if topic is None:
            raise NotCoordinator(f"there is no topic {self.name}")
        try:
            self._services.replicas.check_leads_in(topic.topic_id, index, epoch)
        except NotLeaderOrFollower as error:
            raise NotCoordinator(error.message) from None

    def _check_epoch(self, index: int, epoch: int) -> None:
        """Raises NotCoordinator if this broker coordinates a partition in another epoch, or not."""
        if self._ownership.check(index) != epoch:
            raise NotCoordinator(f"epoch {epoch} of {self.name}-{index} is over")
        self.check_leading(index, epoch)

    # -- writing --------------------------------------------------------------------------------

    def log_to_append(self, key: str) -> Partition | None:
        """Returns the log of a key if `append_now` may append to it, else None.

        Such a log is open, and an append to it has the acks of all as soon as it is written.
        """
        partition = self._opened_now(key)
        if partition is None or not self._services.replicas.acknowledges_at_once(partition):
            return None
        return partition

    def append_now(
        self, partition: Partition, records: Records, epoch: int
    ) -> tuple[Log, int] | None:
        """Like `append` without waiting; None, with nothing written, if it would have to wait."""
        self._check_epoch(partition.index, epoch)
        try:
            made = self._batch(partition, records)
            appended = self._services.appends.append_now(partition, made, _PRODUCE_VERSION)
        except BrokerError as error:
            raise _as_not_coordinator(error) from None
        if appended is None:
            return None
        return (partition.topic_id, partition.index), appended.base_offset

    async def append(self, key: str, records: Records, epoch: int) -> tuple[Log, int]:
        """Appends records to the partition of a key; returns the log and base offset once they are stored.

        `epoch` is the one in which the key's state was loaded. In another one nothing is written,
        because the log may have records of the key that are newer.

        A log that cannot be written raises NotCoordinator, as in Kafka: clients then ask for the
        coordinator again.
        """
        return await self._write(await self._opened(key), records, epoch)

    async def append_in_transaction(
        self,
        key: str,
        records: Records,
        epoch: int,
        producer: ProducerIdAndEpoch,
        verify: Callable[[Partition], Awaitable[Guard | None]],
    ) -> tuple[Log, int]:
        """Like `append`, as part of a producer's transaction; `verify` returns its guard.

        Raises what `verify` and `append` raise.
        """
        partition = await self._opened(key)
        self._check_epoch(partition.index, epoch)
        guard = await verify(partition)
        return await self._write(partition, records, epoch, producer, guard)

    async def _write(
        self,
        partition: Partition,
        records: Records,
        epoch: int,
        producer: ProducerIdAndEpoch | None = None,
        guard: Guard | None = None,
    ) -> tuple[Log, int]:
        self._check_epoch(partition.index, epoch)
        made = self._batch(partition, records, producer)
        try:
            appended = self._append(partition, made, guard=guard, internal=producer is not None)
            if isinstance(appended, asyncio.Future):
                appended = await appended
        except BrokerError as error:
            raise _as_not_coordinator(error) from None
        return (partition.topic_id, partition.index), appended.base_offset

    def _append(
        self,
        partition: Partition,
        made: bytes,
        *,
        guard: Guard | None = None,
        internal: bool = False,
    ) -> Appended | asyncio.Future[Appended]:
        """Appends a batch; with replicas the result comes when all that are in sync have it.

        Raises, or the future raises, the error for a producer with acks=all.
        """
        replicas = self._services.replicas
        replicas.check_own_append(partition)
        appended = self._services.appends.append(
            partition, made, _PRODUCE_VERSION, guard=guard, internal=internal
        )
        return replicas.acknowledged(partition, appended, self._declared.timeout_ms)

    async def append_all(self, key: str, records: Sequence[Written], epoch: int) -> None:
        """Writes any number of records to a key's log, in batches of bounded size."""
        for at in range(0, len(records), _RECORDS_PER_BATCH):
            await self.append(key, records[at : at + _RECORDS_PER_BATCH], epoch)

    def _batch(
        self,
        partition: Partition,
        records: Records,
        producer: ProducerIdAndEpoch | None = None,
    ) -> bytes:
        """Makes a batch of records. Raises MessageTooLarge for one that would be refused."""
        most = partition.config.max_message_bytes
        if not isinstance(records, Plain):
            records = written(records)
        if records.size > most:
            raise MessageTooLarge(
                f"records of {records.size} bytes exceed max.message.bytes={most}"
            )
        return in_batch(records, self._clock.now_ms(), producer=producer)

    # -- the topic ------------------------------------------------------------------------------

    def _opened_now(self, key: str) -> Partition | None:
        """Returns the partition of a key if it exists and is open, else None."""
        if self.is_missing:
            return None
        try:
            return self._services.partitions.opened(self.name, self.index_of(key))
        except (WouldBlock, BrokerError):
            return None  # `append` waits, or raises the error

    async def _opened(self, key: str) -> Partition:
        """Returns the partition of a key, opened if necessary; creates the topic.

        Raises NotCoordinator and CoordinatorNotAvailable.
        """
        try:
            await self._create()
            return await self._services.partitions.open(self.name, self.index_of(key))
        except BrokerError as error:
            raise _as_not_coordinator(error) from None

    async def create(self) -> None:
        """Creates the topic if there is none. Raises CoordinatorNotAvailable."""
        try:
            await self._create()
        except BrokerError as error:
            raise CoordinatorNotAvailable(error.message) from None

    async def _create(self) -> None:
        """Creates the topic if there is none. Raises what `Topics.create` raises.

        The metadata name it before its logs are there: calls meanwhile wait for them.
        """
        if not self.is_missing and not self._creating.locked():
            return
        declared = self._declared
        settings = {
            "cleanup.policy": "compact",
            "compression.type": declared.compression,
            "segment.bytes": str(declared.segment_bytes),
        }
        if declared.min_insync is not None:
            settings["min.insync.replicas"] = str(declared.min_insync)
        async with self._creating:
            if self.is_missing:
                with contextlib.suppress(TopicAlreadyExists):
                    await self._services.topics.create(
                        self.name,
                        partitions=declared.partitions,
                        factor=self._factor(),
                        configs=settings,
                    )

    def _factor(self) -> int:
        """Returns how many replicas the partitions of the topic can have now."""
        from tidelog.broker.coordinators.raising import factor  # once, for a new topic

        image = self._services.metadata.image
        wanted = self._declared.replication_factor
        return factor(image, wanted, self._services.settings.cordoned(image))


def _as_not_coordinator(error: BrokerError) -> BrokerError:
    """Returns the error after which clients ask for the coordinator again, as Kafka does."""
    if isinstance(error, _NOT_AVAILABLE):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, KafkaStorageError | NotLeaderOrFollower):
        return NotCoordinator(error.message)
    return error
