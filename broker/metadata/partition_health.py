"""Finds offline and under-replicated partitions of an image, and why a replica is not in sync. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import PartitionRecord

SERVING = "serving"
FENCED = "fenced"
STOPPING = "stopping"
AWAY = "away"


class PartitionHealth(NamedTuple):
    """One partition of an image."""

    topic: Topic
    number: int
    record: PartitionRecord
    is_offline: bool
    """Whether the partition has no leader, or one without a session."""

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that are not in sync, without those that a reassignment adds."""
        record = self.record
        return tuple(
            broker
            for broker in record.replicas
            if broker not in record.isr and broker not in record.adding
        )

    @property
    def is_led_by_non_preferred(self) -> bool:
        """Whether another replica than the preferred one leads."""
        return not self.is_offline and self.record.leader != self.record.replicas[0]


def health_of_partitions(image: Image) -> Iterator[PartitionHealth]:
    """Yields every partition, by topic."""
    for topic in image.topics.values():
        for index, record in enumerate(topic.assignments):
            yield PartitionHealth(topic, index, record, record.leader not in image.brokers)


def state_of(image: Image, broker: int) -> str:
    """Returns the state of a broker: SERVING, FENCED, STOPPING, or AWAY without a session."""
    live = image.brokers.get(broker)
    if live is None:
        return AWAY
    if live.record.is_stopping:
        return STOPPING
    return FENCED if live.record.is_fenced else SERVING


def why_missing(image: Image, health: PartitionHealth, broker: int) -> str:
    """Returns in a few words why a replica is not in sync."""
    state = state_of(image, broker)
    if state == AWAY:
        return "the broker has no session" if broker in image.registrations else "no such broker"
    if state == FENCED:
        return "the broker has not caught up with the metadata"
    if state == STOPPING:
        return "the broker is stopping"
    offline = image.offline.get(broker)
    topic_id, index = health.topic.topic_id, health.number
    if offline is not None and index in offline.record.partitions.get(topic_id, ()):
        return "its log has failed"
    if offline is not None and index in offline.record.full.get(topic_id, ()):
        return "its disk is full"
    if offline is not None and index in offline.record.slow.get(topic_id, ()):
        return "its disk is slow"
    return "nobody leads" if health.is_offline else "it is behind the leader"
