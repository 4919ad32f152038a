"""From which replica a consumer reads (KIP-392): what a leader answers, and what a follower serves.

A consumer of Fetch v11 or newer may read from a follower, up to the high watermark that the follower
knows. With `replica.selector.class` a leader sends it to the in-sync replica in its rack. A follower
sends nobody anywhere. One that has no leader, or is about to begin a leader epoch, serves nobody; the
consumer then asks the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.partitions.lookup import check_epoch
from tidelog.broker.partitions.replication.isr import preferred_read_replica
from tidelog.config.broker.checks import RACK_AWARE_SELECTOR
from tidelog.protocol.errors import NotLeaderOrFollower

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog.broker.metadata.image import Image
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.services import Services
    from tidelog.config import BrokerConfig
    from tidelog.storage.log.partition import Partition

NO_REPLICA = -1


class Replicas(Protocol):
    """The replicas of this broker, in their roles."""

    def led(self, partition: Partition) -> PartitionLeader | None:
        """Returns the leader of a partition, if this broker leads it."""

    def followed_by_id(self, topic_id: UUID, index: int) -> PartitionFollower | None:
        """Returns the follower of a partition, if this broker follows its leader."""


class ConsumerReads:
    """One fetch of a consumer."""

    __slots__ = ("_listener", "_rack", "_replicas", "_services")

    def __init__(self, services: Services, replicas: Replicas, rack: str, listener: str) -> None:
        """`rack` is the consumer's, empty if it names none; `listener` the one by which it came."""
        self._services, self._replicas = services, replicas
        self._rack, self._listener = rack, listener

    def partition(self, topic: str, index: int, epoch: int, may_block: bool) -> Partition:
        """Returns the log of a partition that this broker leads or follows.

        `epoch` is the leader epoch that the consumer knows. Raises what `Partitions.leader`
        raises.
        """
        services = self._services
        known = services.metadata.image.topics.get(topic)
        if known is not None and 0 <= index < len(known.assignments):
            record, me = known.assignments[index], services.metadata.node_id
            if record.leader != me and me in record.replicas:
                check_epoch(record.leader_epoch, epoch)
                followed = self._replicas.followed_by_id(known.topic_id, index)
                if (
                    followed is None
                    or followed.is_stopped
                    or followed.follower.leader_epoch != record.leader_epoch
                ):
                    raise NotLeaderOrFollower(f"broker {record.leader} leads {topic}-{index}")
                followed.partition.check_online()
                return followed.partition
        return services.partitions.leader(topic, index, epoch, may_block)

    def preferred(self, partition: Partition, offset: int) -> int:
        """Returns the broker from which the consumer should read instead; NO_REPLICA if none.

        Only the leader knows what others have. One in the consumer's rack is read from itself.
        """
        rack, config = self._rack, self._services.config
        if not rack or not directs_consumers(config) or config.cluster.broker_rack == rack:
            return NO_REPLICA
        led = self._replicas.led(partition)
        if led is None:
            return NO_REPLICA
        nearby = brokers_in(rack, self._services.metadata.image, self._listener)
        found = preferred_read_replica(led.leader, nearby, offset)
        return NO_REPLICA if found is None else found


def directs_consumers(config: BrokerConfig) -> bool:
    """Returns whether leaders send consumers to the replicas in their racks."""
    return config.replication.replica_selector_class == RACK_AWARE_SELECTOR


def brokers_in(rack: str, image: Image, listener: str) -> list[int]:
    """Returns the brokers of a rack that clients of a listener can reach."""
    return [
        broker
        for broker, live in image.brokers.items()
        if live.record.rack == rack
        and not live.record.is_fenced
        and any(each.listener == listener for each in live.record.endpoints)
    ]
