"""Where groups are kept: each in one partition of __consumer_offsets, by the hash of its id, as in Kafka.

The topic is made when the first group is to be kept. What is put in is stored by the log's own flush rules
when the call returns. Errors are those that a group's clients see.
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
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.clock import Clock
    from broker.groups.group import Group
    from broker.groups.store import Log, Written
    from broker.node import Node
    from storage.log.partition import Partition

TOPIC = "__consumer_offsets"
_READ_BYTES = 1 << 20
_PRODUCE_VERSION = 13
_RECORDS_PER_BATCH = 1_000


class GroupLog:
    """The log of one node's groups."""

    def __init__(self, node: Node, clock: Clock) -> None:
        """Records get their times from the clock."""
        self._node = node
        self._clock = clock
        self._creating = asyncio.Lock()

    def partitions(self) -> int:
        """How many partitions there are, or will be."""
        topic = self._node.metadata.image.topics.get(TOPIC)
        return self._node.config.offsets_topic_num_partitions if topic is None else topic.partitions

    def index_of(self, group_id: str) -> int:
        """The partition a group belongs to."""
        return partition_of(group_id, self.partitions())

    def read(self, index: int, make: Callable[[str], Group]) -> Loading:
        """In a thread: take in every record of one partition; `make` begins a group."""
        partition = self._node.partition(TOPIC, index)
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
                            loading.record(record.offset, record.key, record.value)
                    offset = batch.last_offset + 1
            if offset == before:
                break
        return loading

    def append_now(self, group_id: str, records: Sequence[Written]) -> tuple[Log, int] | None:
        """Do as `append` without waiting; None, and nothing is put in, if it would have to."""
        partition = self._opened_now(group_id)
        if partition is None:
            return None
        try:
            made = self._batch(records)
            appended = self._node.appends.append_now(partition, made, _PRODUCE_VERSION)
        except BrokerError as error:
            raise _refused_as_kafka_does(error) from None
        if appended is None:
            return None
        return (partition.topic_id, partition.index), appended.base_offset

    async def append(self, group_id: str, records: Sequence[Written]) -> tuple[Log, int]:
        """Put records of a group into its log; which that is, and the first offset, once they are stored.

        A log that cannot take them is NotCoordinator, as in Kafka: clients look for another and ask again.
        """
        try:
            partition = await self._opened(group_id)
            appended = self._node.append(partition, self._batch(records), _PRODUCE_VERSION)
            if isinstance(appended, asyncio.Future):
                appended = await appended
        except BrokerError as error:
            raise _refused_as_kafka_does(error) from None
        return (partition.topic_id, partition.index), appended.base_offset

    async def append_all(self, group_id: str, records: Sequence[Written]) -> None:
        """Put as many records as there are into a group's log, in batches of bounded size."""
        for at in range(0, len(records), _RECORDS_PER_BATCH):
            await self.append(group_id, records[at : at + _RECORDS_PER_BATCH])

    def _batch(self, records: Sequence[Written]) -> bytes:
        return batches.build_plain(records, self._clock.now_ms())

    def _opened_now(self, group_id: str) -> Partition | None:
        """The partition a group is kept in, if it is there and open."""
        if TOPIC not in self._node.metadata.image.topics:
            return None
        try:
            return self._node.opened_partition(TOPIC, self.index_of(group_id))
        except (WouldBlock, BrokerError):
            return None  # whoever may wait will see

    async def _opened(self, group_id: str) -> Partition:
        """The partition a group is kept in; makes the topic."""
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
                        await node.create_topic(
                            TOPIC, partitions=config.offsets_topic_num_partitions, configs=settings
                        )
        return await node.open_partition(TOPIC, self.index_of(group_id))


def _refused_as_kafka_does(error: BrokerError) -> BrokerError:
    """A log that cannot take a group makes its clients look for another coordinator."""
    if isinstance(error, UnknownTopicOrPartition):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, KafkaStorageError):
        return NotCoordinator(error.message)
    return error
