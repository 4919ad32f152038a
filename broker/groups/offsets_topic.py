"""Stores groups in __consumer_offsets: each in one partition, by the hash of its id, as in Kafka.

The topic is created when the first group is stored. A write is durable, by the log's own flush
settings, when the call returns. The errors are those that clients of groups get.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from broker.groups.ownership import NO_EPOCH
from broker.groups.store import Loading
from protocol.errors import (
    BrokerError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from protocol.group_errors import CoordinatorNotAvailable, NotCoordinator
from protocol.group_records import partition_of
from protocol.records import batch as batches
from storage.time.trusted_clock import StepBack, corrected_time
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.clock import Clock
    from broker.groups.group import Group
    from broker.groups.ownership import Ownership
    from broker.groups.store import Log, Written
    from broker.node import Node
    from protocol.records.batch import Record
    from storage.log.partition import Appended, Partition
    from storage.log.times.append_clock import AppendClock
    from storage.time.trusted_clock import Change

TOPIC = "__consumer_offsets"
_READ_BYTES = 1 << 20
_PRODUCE_VERSION = 13
_RECORDS_PER_BATCH = 1_000
_ACKS_ALL = -1
_NOT_AVAILABLE = (
    UnknownTopicOrPartition,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
)


class GroupLog:
    """The log of one broker's groups."""

    def __init__(
        self, node: Node, clock: Clock, ownership: Ownership, *, is_apart: bool = False
    ) -> None:
        """Takes the node, the clock that stamps the records, and which partitions may be written.

        If the clock `is_apart`, it is not the one that is watched, and nothing corrects its times.
        """
        self._node = node
        self._clock = clock
        self._ownership = ownership
        self._is_apart = is_apart
        self._creating = asyncio.Lock()

    def partitions(self) -> int:
        """How many partitions the topic has, or will have."""
        topic = self._node.metadata.image.topics.get(TOPIC)
        return self._node.config.offsets_topic_num_partitions if topic is None else topic.partitions

    def index_of(self, group_id: str) -> int:
        """Returns the partition of a group."""
        return partition_of(group_id, self.partitions())

    def read(
        self,
        index: int,
        make: Callable[[str], Group],
        *,
        goes_on: Callable[[], bool] = lambda: True,
        to_log_end: bool = False,
    ) -> Loading:
        """Takes in every record of one partition, in a thread; `make` creates a group.

        Times in a record count as the corrections of its log say. If the clock is corrected
        meanwhile, everything is read again. The result is useless once `goes_on` returns False.
        A leader that has just been elected reads `to_log_end`: its whole log becomes readable, and
        every record that was acknowledged is in it.
        """
        partition = self._node.partition(TOPIC, index)
        while True:
            corrections = partition.append_clock.corrections
            end_offset = partition.log_end_offset if to_log_end else partition.high_watermark
            loading = self._read(partition, end_offset, make, goes_on)
            if partition.append_clock.corrections == corrections:
                return loading

    def _read(
        self,
        partition: Partition,
        end_offset: int,
        make: Callable[[str], Group],
        goes_on: Callable[[], bool],
    ) -> Loading:
        clock = partition.append_clock
        loading = Loading(make, (partition.topic_id, partition.index))
        offset = partition.log_start_offset
        while offset < end_offset and goes_on():
            fetched = partition.read(offset, _READ_BYTES, upper_offset=end_offset, minimum_one=True)
            before = offset
            for buffer in fetched.buffers:
                for batch in batches.scan(buffer):
                    for record in batches.records(buffer, batch):
                        if not batch.is_control:
                            changes = self._changes_at(clock, record)
                            loading.record(record.offset, record.key, record.value, changes)
                    offset = batch.last_offset + 1
            if offset == before:
                break
        return loading

    def _changes_at(self, clock: AppendClock, record: Record) -> list[Change]:
        """Returns how the clock has changed since it gave the times in a record."""
        if self._is_apart:
            return []
        changes: list[Change] = [*clock.changes_at(record.offset)]
        time_ms, now_ms = record.timestamp, self._clock.now_ms()
        for change in changes:
            time_ms = corrected_time(change, time_ms)
        if time_ms > now_ms:  # it was written by now
            changes.append(StepBack(time_ms, now_ms))
        return changes

    def append_now(self, group_id: str, records: Sequence[Written]) -> tuple[Log, int] | None:
        """Like `append` without waiting; None, with nothing written, if it would have to wait."""
        if self._node.replicas is not None:
            return None  # the others must have it first
        partition = self._opened_now(group_id)
        if partition is None:
            return None
        try:
            made = self._batch(records)
            appended = self._node.appends.append_now(partition, made, _PRODUCE_VERSION)
        except BrokerError as error:
            raise _as_not_coordinator(error) from None
        if appended is None:
            return None
        return (partition.topic_id, partition.index), appended.base_offset

    async def append(
        self, group_id: str, records: Sequence[Written], epoch: int
    ) -> tuple[Log, int]:
        """Writes records of a group; returns the log and the first offset once they are stored.

        `epoch` is the one in which the group was loaded. In another one nothing is written, because
        the log may have records of the group that are newer.

        A log that cannot take them raises NotCoordinator, as in Kafka: clients then look up the
        coordinator again.
        """
        try:
            partition = await self._opened(group_id)
            self._check_epoch(partition.index, epoch)
            appended = self._append(partition, self._batch(records))
            if isinstance(appended, asyncio.Future):
                appended = await appended
        except BrokerError as error:
            raise _as_not_coordinator(error) from None
        return (partition.topic_id, partition.index), appended.base_offset

    def _append(self, partition: Partition, made: bytes) -> Appended | asyncio.Future[Appended]:
        """Appends a batch; with replicas the result comes when all that are in sync have it.

        Raises, or the future raises, what a producer with acks=all gets.
        """
        replicas = self._node.replicas
        if replicas is None:
            return self._node.append(partition, made, _PRODUCE_VERSION)
        replicas.check_append(partition, _ACKS_ALL)
        appended = self._node.append(partition, made, _PRODUCE_VERSION)
        timeout_ms = self._node.config.offsets_commit_timeout_ms
        return replicas.acknowledged(partition, appended, timeout_ms)

    async def append_all(self, group_id: str, records: Sequence[Written], epoch: int) -> None:
        """Writes any number of records to a group's log, in batches of bounded size."""
        for at in range(0, len(records), _RECORDS_PER_BATCH):
            await self.append(group_id, records[at : at + _RECORDS_PER_BATCH], epoch)

    def check_leading(self, index: int, epoch: int) -> None:
        """Checks that the log of a partition leads in an epoch now, whatever was said before.

        Raises NotCoordinator. A broker that was paused finds here that its lease has ended.
        """
        topic, replicas = self._node.metadata.image.topics.get(TOPIC), self._node.replicas
        led = replicas.led_by_id(topic.topic_id, index) if replicas and topic else None
        if led is None or led.leader.leader_epoch != epoch:
            raise NotCoordinator(
                f"partition {index} of the groups is not led here in epoch {epoch}"
            )
        try:
            led.check_leading()
        except NotLeaderOrFollower as error:
            raise NotCoordinator(error.message) from None

    def _check_epoch(self, index: int, epoch: int) -> None:
        """Raises NotCoordinator if this broker coordinates a partition in another epoch, or not."""
        if epoch != NO_EPOCH:
            if self._ownership.check(index) != epoch:
                raise NotCoordinator(f"epoch {epoch} of partition {index} of the groups is over")
            self.check_leading(index, epoch)

    def _batch(self, records: Sequence[Written]) -> bytes:
        return batches.build_plain(records, self._clock.now_ms())

    def _opened_now(self, group_id: str) -> Partition | None:
        """Returns the partition of a group if it exists and is open, else None."""
        if TOPIC not in self._node.metadata.image.topics:
            return None
        try:
            return self._node.opened_partition(TOPIC, self.index_of(group_id))
        except (WouldBlock, BrokerError):
            return None  # whoever may wait will see

    async def _opened(self, group_id: str) -> Partition:
        """Returns the partition of a group, opened if necessary; creates the topic."""
        await self.create_topic()
        return await self._node.open_partition(TOPIC, self.index_of(group_id))

    async def create_topic(self) -> None:
        """Creates the topic if there is none. Raises what `Topics.create` raises."""
        node, config = self._node, self._node.config
        if TOPIC in node.metadata.image.topics:
            return
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        async with self._creating:
            if TOPIC not in node.metadata.image.topics:
                with contextlib.suppress(TopicAlreadyExists):
                    await node.topics.create(
                        TOPIC,
                        partitions=config.offsets_topic_num_partitions,
                        factor=self._factor(),
                        configs=settings,
                    )

    def _factor(self) -> int:
        """Returns how many replicas the partitions of the topic can have now."""
        if self._node.cluster is None:
            return 1
        from broker.groups.raising import factor  # a broker that is alone needs none of it

        image = self._node.metadata.image
        wanted = self._node.config.offsets_topic_replication_factor
        return factor(image, wanted, self._node.settings.cordoned(image))


def _as_not_coordinator(error: BrokerError) -> BrokerError:
    """Returns the error that makes clients look for another coordinator, as Kafka does."""
    if isinstance(error, _NOT_AVAILABLE):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, KafkaStorageError | NotLeaderOrFollower):
        return NotCoordinator(error.message)
    return error
