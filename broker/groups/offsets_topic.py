"""Stores groups in __consumer_offsets: each in one partition, by the hash of its id, as in Kafka.

The topic is created when the first group is stored. A write is durable, by the log's own flush
settings, when the call returns. The errors are those that clients of groups get.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from broker.groups.store import Loading
from protocol.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from protocol.group_records import partition_of
from protocol.records import batch as batches
from storage.time.trusted_clock import StepBack, corrected_time
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.clock import Clock
    from broker.groups.group import Group
    from broker.groups.store import Log, Written
    from broker.node import Node
    from protocol.records.batch import Record
    from storage.log.partition import Partition
    from storage.log.times.append_clock import AppendClock
    from storage.time.trusted_clock import Change

TOPIC = "__consumer_offsets"
_READ_BYTES = 1 << 20
_PRODUCE_VERSION = 13
_RECORDS_PER_BATCH = 1_000


class GroupLog:
    """The log of one broker's groups."""

    def __init__(self, node: Node, clock: Clock, *, is_apart: bool = False) -> None:
        """Takes the node and the clock that stamps the records.

        If the clock `is_apart`, it is not the one that is watched, and nothing corrects its times.
        """
        self._node = node
        self._clock = clock
        self._is_apart = is_apart
        self._creating = asyncio.Lock()

    def partitions(self) -> int:
        """How many partitions the topic has, or will have."""
        topic = self._node.metadata.image.topics.get(TOPIC)
        return self._node.config.offsets_topic_num_partitions if topic is None else topic.partitions

    def index_of(self, group_id: str) -> int:
        """Returns the partition of a group."""
        return partition_of(group_id, self.partitions())

    def read(self, index: int, make: Callable[[str], Group]) -> Loading:
        """Takes in every record of one partition, in a thread; `make` creates a group.

        Times in a record count as the corrections of its log say. If the clock is corrected
        meanwhile, everything is read again.
        """
        partition = self._node.partition(TOPIC, index)
        while True:
            corrections = partition.append_clock.corrections
            loading = self._read(partition, index, make)
            if partition.append_clock.corrections == corrections:
                return loading

    def _read(self, partition: Partition, index: int, make: Callable[[str], Group]) -> Loading:
        clock = partition.append_clock
        loading = Loading(make, (partition.topic_id, index))
        offset = partition.log_start_offset
        while offset < partition.high_watermark and self._node.ready:
            fetched = partition.read(
                offset, _READ_BYTES, upper_offset=partition.high_watermark, minimum_one=True
            )
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

    async def append(self, group_id: str, records: Sequence[Written]) -> tuple[Log, int]:
        """Writes records of a group; returns the log and the first offset once they are stored.

        A log that cannot take them raises NotCoordinator, as in Kafka: clients then look up the
        coordinator again.
        """
        try:
            partition = await self._opened(group_id)
            appended = self._node.append(partition, self._batch(records), _PRODUCE_VERSION)
            if isinstance(appended, asyncio.Future):
                appended = await appended
        except BrokerError as error:
            raise _as_not_coordinator(error) from None
        return (partition.topic_id, partition.index), appended.base_offset

    async def append_all(self, group_id: str, records: Sequence[Written]) -> None:
        """Writes any number of records to a group's log, in batches of bounded size."""
        for at in range(0, len(records), _RECORDS_PER_BATCH):
            await self.append(group_id, records[at : at + _RECORDS_PER_BATCH])

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
        node, config = self._node, self._node.config
        if TOPIC not in node.metadata.image.topics:
            async with self._creating:
                if TOPIC not in node.metadata.image.topics:
                    settings = {
                        "cleanup.policy": "compact",
                        "compression.type": "producer",
                        "segment.bytes": str(config.offsets_topic_segment_bytes),
                    }
                    with contextlib.suppress(TopicAlreadyExists):
                        await node.topics.create(
                            TOPIC, partitions=config.offsets_topic_num_partitions, configs=settings
                        )
        return await node.open_partition(TOPIC, self.index_of(group_id))


def _as_not_coordinator(error: BrokerError) -> BrokerError:
    """Returns the error that makes clients look for another coordinator, as Kafka does."""
    if isinstance(error, UnknownTopicOrPartition):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, KafkaStorageError):
        return NotCoordinator(error.message)
    return error
