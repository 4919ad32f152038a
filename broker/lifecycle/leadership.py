"""Leaders of partitions: the metadata name them, and an only broker claims every partition.

A leader epoch never decreases. The metadata have one for each partition, and the reconciler starts it in
the leader's log. A log may be ahead: a directory that Kafka wrote has its own epoch.
"""

from __future__ import annotations

import contextlib
import logging
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.broker.metadata.cluster import MOST_CHANGES, ChangedMeanwhileError
from tidelog.broker.metadata.records import UNKNOWN_EPOCH, PartitionRecord

if TYPE_CHECKING:
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.pools import Pool
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.store import LogStore

log = logging.getLogger("tidelog.topics")


def known_leader_epoch(store: LogStore, topic: Topic, index: int) -> int:
    """Returns the leader epoch of a partition for clients, wherever its leader is."""
    return max(topic.assignments[index].leader_epoch, store.leader_epoch(topic.name, index) or 0)


async def claim_partitions(
    metadata: ClusterMetadata, store: LogStore, reads: Pool, *, unknown_only: bool = False
) -> None:
    """Makes this broker the leader of every partition that it does not lead.

    Such partitions are in an older tidelog's metadata, which named no leader, and in those of a
    broker whose node.id was changed. With `unknown_only`, only partitions without a known leader
    epoch are claimed: an only broker wrote them before others joined.

    If the metadata have no leader epoch, the log's epoch is read in the pool `reads` and used; else
    a new epoch starts. Raises KafkaStorageError.
    """
    done = 0
    while found := _to_claim(image := metadata.image, metadata.node_id, unknown_only):
        unknown = [name for name, record in found.items() if record.leader_epoch == UNKNOWN_EPOCH]
        closed = [name for name in unknown if store.leader_epoch(*name) is None]
        await reads.run(store.read_leader_epochs, closed)
        claimed = {
            name: PartitionRecord.led_by(metadata.node_id, _next_epoch(store, name, record))
            for name, record in islice(found.items(), MOST_CHANGES)
        }
        with contextlib.suppress(ChangedMeanwhileError):
            await metadata.put_partitions(claimed, since=image)
            done += len(claimed)
    if done:
        log.info("partitions claimed", extra={"partitions": done})


def _to_claim(
    image: Image, node_id: int, unknown_only: bool
) -> dict[TopicPartition, PartitionRecord]:
    return {
        (topic.name, index): record
        for topic in image.topics.values()
        for index, record in enumerate(topic.assignments)
        if record.leader != node_id and (record.leader_epoch == UNKNOWN_EPOCH or not unknown_only)
    }


def _next_epoch(store: LogStore, name: TopicPartition, record: PartitionRecord) -> int:
    if record.leader_epoch == UNKNOWN_EPOCH:
        return store.leader_epoch(*name) or 0
    return record.leader_epoch + 1
