"""The leaders of partitions: the metadata name them, and a single broker claims every partition.

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
from tidelog.protocol.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.pools import Pool
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.topics")

ANY_EPOCH = -1  # of a client that does not know the leader epoch


def check_leader(metadata: ClusterMetadata, topic: str, index: int, epoch: int = ANY_EPOCH) -> None:
    """Checks that this broker leads a partition.

    Raises UnknownTopicOrPartition, and NotLeaderOrFollower if another broker leads it or none does.
    A broker that has a replica first compares the leader epoch of the client with its own, and
    raises FencedLeaderEpoch or UnknownLeaderEpoch (`Partition.getLocalLog` of Kafka).
    """
    known = metadata.image.topics.get(topic)
    if known is None or not 0 <= index < len(known.assignments):
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
    record = known.assignments[index]
    if record.leader != metadata.node_id:
        if metadata.node_id in record.replicas:
            check_epoch(record.leader_epoch, epoch)
        raise NotLeaderOrFollower(f"broker {record.leader} leads {topic}-{index}")


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Compares the leader epoch that a client knows with that of the leader's log (KIP-320).

    Raises FencedLeaderEpoch for an older one, UnknownLeaderEpoch for one from the future.
    """
    check_epoch(partition.leader_epoch, epoch)


def check_epoch(current: int, epoch: int) -> None:
    """Compares the leader epoch that a client knows with that of a partition (KIP-320).

    Raises FencedLeaderEpoch for an older one, UnknownLeaderEpoch for one from the future.
    """
    if epoch in (ANY_EPOCH, current):
        return
    if epoch < current:
        raise FencedLeaderEpoch(f"epoch {epoch} ended; it is {current} now")
    raise UnknownLeaderEpoch(f"epoch {epoch} is not known yet; it is {current}")


def known_leader_epoch(store: LogStore, topic: Topic, index: int) -> int:
    """Returns the leader epoch of a partition for clients, wherever its leader is."""
    return max(topic.assignments[index].leader_epoch, store.leader_epoch(topic.name, index) or 0)


async def claim_partitions(
    metadata: ClusterMetadata, store: LogStore, reads: Pool, *, unknown_only: bool = False
) -> None:
    """Makes this broker, the only one, the leader of every partition that it does not lead.

    Such partitions are in an older tidelog's metadata, which named no leader, and in those of a
    broker whose node.id was changed. With `unknown_only`, only partitions without a known leader
    epoch are claimed: they belonged to a broker that was alone, and is one of several now.

    If the metadata have no leader epoch, the log's epoch is read in the pool `reads` and used; else
    a new epoch starts. Raises KafkaStorageError.
    """
    done = 0
    while others := _led_by_others(image := metadata.image, metadata.node_id, unknown_only):
        unknown = [name for name, record in others.items() if record.leader_epoch == UNKNOWN_EPOCH]
        closed = [name for name in unknown if store.leader_epoch(*name) is None]
        await reads.run(store.read_leader_epochs, closed)
        claimed = {
            name: PartitionRecord.led_by(metadata.node_id, _next_epoch(store, name, record))
            for name, record in islice(others.items(), MOST_CHANGES)
        }
        with contextlib.suppress(ChangedMeanwhileError):
            await metadata.put_partitions(claimed, since=image)
            done += len(claimed)
    if done:
        log.info("partitions claimed", extra={"partitions": done})


def _led_by_others(
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
