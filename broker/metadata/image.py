"""The image: the whole metadata at one revision, as one immutable value.

A reader of an image sees one consistent moment. `image_builder.py` makes images of the keys.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.metadata import records
from tidelog.broker.metadata.brokers.members import Members
from tidelog.broker.metadata.store import Compare, Delete
from tidelog.broker.quotas.entity import NO_QUOTAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from tidelog.broker.metadata.brokers.members import (
        Controller,
        LiveBroker,
        Offline,
        Registration,
    )
    from tidelog.broker.metadata.records import CreationRecord, PartitionRecord
    from tidelog.broker.metadata.store import Operation
    from tidelog.broker.quotas.entity import Quotas

_NONE: MappingProxyType[Any, Any] = MappingProxyType({})


class Topic(NamedTuple):
    """One topic. `configs` are its own settings; `assignments` name the partitions' brokers.

    `mod_revisions` are the revisions that last modified the assignments. A topic that is not in an
    image yet has none.
    """

    name: str
    topic_id: UUID
    assignments: tuple[PartitionRecord, ...]
    configs: Mapping[str, str]
    mod_revisions: tuple[int, ...] = ()

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.assignments)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of its first partition."""
        return len(self.assignments[0].replicas)


class Creation(NamedTuple):
    """The creation of a topic that is not over, and the revision that last modified its key."""

    record: CreationRecord
    mod_revision: int


class Image(NamedTuple):
    """The whole metadata at one revision."""

    revision: int
    cluster_id: str
    topics: MappingProxyType[str, Topic]
    topics_by_id: MappingProxyType[UUID, Topic]
    broker_configs: Mapping[str, str]
    next_producer_id: int
    deletions: Mapping[UUID, str]  # names of deleted topics whose logs may still be there
    members: Members = Members()
    creations: Mapping[UUID, Creation] = _NONE  # unfinished ones of several transactions
    own_configs: Mapping[int, Mapping[str, str]] = _NONE  # of single brokers, by broker id
    quotas: Quotas = NO_QUOTAS  # of clients and addresses, by entity
    config_bytes: int = 0  # the size of the settings of all topics and brokers

    @property
    def brokers(self) -> Mapping[int, LiveBroker]:
        """The sessions of brokers that have not ended, by broker id."""
        return self.members.brokers

    @property
    def registrations(self) -> Mapping[int, Registration]:
        """The last registration of each broker that ever registered."""
        return self.members.registrations

    @property
    def offline(self) -> Mapping[int, Offline]:
        """The partitions that each broker cannot or should not lead; most brokers have no entry."""
        return self.members.offline

    @property
    def controller(self) -> Controller | None:
        """The controller, if there is one."""
        return self.members.controller

    def topic_name(self, topic_id: UUID) -> str | None:
        """Returns the name of the topic with an id; None if there is no such topic."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def assignment(self, topic: str, index: int) -> PartitionRecord | None:
        """Returns the assignment of a partition; None if there is no such partition."""
        known = self.topics.get(topic)
        if known is None or not 0 <= index < len(known.assignments):
            return None
        return known.assignments[index]

    def mod_revision(self, topic: str, index: int) -> int:
        """Returns the revision that last modified a partition; 0 if there is no such partition."""
        known = self.topics.get(topic)
        if known is None or not 0 <= index < len(known.mod_revisions):
            return 0
        return known.mod_revisions[index]


def changed_topics(image: Image, before: Image | None) -> Sequence[Topic]:
    """Returns the topics that differ from those of an earlier image; all if there is none.

    An image that was made from the earlier one shares the topics that have not changed, so comparing one is
    cheap. Settings that topics inherit from the brokers are not compared.
    """
    topics = image.topics.values()
    if before is None:
        return list(topics)
    known = before.topics.get
    return [topic for topic in topics if known(topic.name) is not topic]


def changed_partitions(image: Image, topic: Topic, before: Image | None) -> Sequence[int]:
    """Returns the numbers of the partitions that differ from those of an earlier image.

    Compares the assignments; if the topic's settings differ or there is no earlier image, returns all.
    """
    known = None if before is None else before.topics.get(topic.name)
    if before is None or known is None or known.topic_id != topic.topic_id:
        return range(topic.partitions)
    if before.broker_configs != image.broker_configs or known.configs != topic.configs:
        return range(topic.partitions)
    if known is topic:
        return ()
    old, new = known.mod_revisions, topic.mod_revisions
    differ = [index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
    return [*differ, *range(len(old), topic.partitions)]


def deleters(image: Image, topic: Topic) -> set[int]:
    """Returns the brokers that have logs of a topic; none if there is one broker alone."""
    if not image.brokers:
        return set()
    return {broker for record in topic.assignments for broker in record.replicas}


def abandonment(
    topic_id: UUID, creation: Creation
) -> tuple[tuple[Compare, ...], tuple[Operation, ...]]:
    """Returns the comparisons and operations of the transaction that turns a creation into a deletion.

    The partitions are then deleted as those of a deleted topic. The transaction changes nothing if the
    creation has ended meanwhile.
    """
    key = records.creation_key(topic_id)
    deletion = records.put_deletion(topic_id, creation.record.name)
    return (Compare(key, "mod", "=", creation.mod_revision),), (Delete(key), deletion)
