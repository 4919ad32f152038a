"""The leaders of partitions: the metadata name them, and a single broker claims every partition.

A leader epoch never decreases. The metadata give each partition one, and the reconciler makes the
leader's log begin it. A log may be ahead: a directory that Kafka wrote brings its own epoch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.metadata.cluster import ChangedMeanwhileError
from broker.metadata.records import UNKNOWN_EPOCH, PartitionRecord
from protocol.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.image import Image, Topic
    from broker.pools import Pool
    from protocol.topic_partition import TopicPartition
    from storage.directory.store import LogStore
    from storage.log.partition import Partition

log = logging.getLogger("tidelog.topics")

ANY_EPOCH = -1  # of a client that does not know the leader epoch


def check_leader(metadata: ClusterMetadata, topic: str, index: int) -> None:
    """Checks that this broker leads a partition.

    Raises UnknownTopicOrPartition, and NotLeaderOrFollower if another broker leads it or none does.
    """
    known = metadata.image.topics.get(topic)
    if known is None or not 0 <= index < len(known.assignments):
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
    leader = known.assignments[index].leader
    if leader != metadata.node_id:
        raise NotLeaderOrFollower(f"broker {leader} leads {topic}-{index}")


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Compares the leader epoch that a client knows with that of the leader's log (KIP-320).

    Raises FencedLeaderEpoch for an older one, UnknownLeaderEpoch for one from the future.
    """
    current = partition.leader_epoch
    if epoch in (ANY_EPOCH, current):
        return
    if epoch < current:
        raise FencedLeaderEpoch(f"epoch {epoch} ended; it is {current} now")
    raise UnknownLeaderEpoch(f"epoch {epoch} is not known yet; it is {current}")


def known_leader_epoch(store: LogStore, topic: Topic, index: int) -> int:
    """Returns the leader epoch of a partition for clients, wherever its leader is."""
    return max(topic.assignments[index].leader_epoch, store.leader_epoch(topic.name, index) or 0)


async def claim_partitions(metadata: ClusterMetadata, store: LogStore, reads: Pool) -> None:
    """Makes this broker, the only one, the leader of every partition that it does not lead.

    These are the partitions of an older tidelog's metadata, which named no leader, and those of a
    broker whose node.id was changed. If the metadata have no leader epoch, the log's epoch is read
    in the pool `reads` and used; else a new epoch begins. Raises KafkaStorageError.
    """
    while True:
        image = metadata.image
        others = _led_by_others(image, metadata.node_id)
        if not others:
            return
        unknown = [name for name, record in others.items() if record.leader_epoch == UNKNOWN_EPOCH]
        closed = [name for name in unknown if store.leader_epoch(*name) is None]
        await reads.run(store.read_leader_epochs, closed)
        claimed = {
            name: PartitionRecord.led_by(metadata.node_id, _next_epoch(store, name, record))
            for name, record in others.items()
        }
        try:
            await metadata.put_partitions(claimed, since=image)
        except ChangedMeanwhileError:
            continue
        log.info("partitions claimed", extra={"partitions": len(claimed)})
        return


def _led_by_others(image: Image, node_id: int) -> dict[TopicPartition, PartitionRecord]:
    return {
        (topic.name, index): record
        for topic in image.topics.values()
        for index, record in enumerate(topic.assignments)
        if record.leader != node_id
    }


def _next_epoch(store: LogStore, name: TopicPartition, record: PartitionRecord) -> int:
    if record.leader_epoch == UNKNOWN_EPOCH:
        return store.leader_epoch(*name) or 0
    return record.leader_epoch + 1
