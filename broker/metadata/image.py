"""The image: the whole metadata at one revision, as one immutable value.

A reader of an image sees one consistent moment. `ImageBuilder` makes the first image from all keys
and the next ones from changes; images share what a change does not touch.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.metadata import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from broker.metadata.members import Controller, LiveBroker, Offline, Registration
    from broker.metadata.records import DeletionRecord, PartitionRecord, Record, TopicRecord
    from broker.metadata.store import Change, KeyValue


_NONE: MappingProxyType[int, Any] = MappingProxyType({})


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


class Members(NamedTuple):
    """The brokers of the cluster, by broker id, and the controller (`members.py`)."""

    brokers: Mapping[int, LiveBroker] = _NONE
    registrations: Mapping[int, Registration] = _NONE
    offline: Mapping[int, Offline] = _NONE
    controller: Controller | None = None
    seen: Mapping[int, int] = _NONE  # the revisions at which brokers saw those that stop


class Image(NamedTuple):
    """The whole metadata at one revision."""

    revision: int
    cluster_id: str
    topics: MappingProxyType[str, Topic]
    topics_by_id: MappingProxyType[UUID, Topic]
    broker_configs: Mapping[str, str]
    next_producer_id: int
    deletions: MappingProxyType[UUID, str]  # names of deleted topics whose logs may still be there
    members: Members = Members()

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
        """What each broker cannot lead; most brokers have no entry."""
        return self.members.offline

    @property
    def controller(self) -> Controller | None:
        """The controller, if there is one."""
        return self.members.controller

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


def deleters(image: Image, topic: Topic) -> set[int]:
    """Returns the brokers that have logs of a topic; none if there is one broker alone."""
    if not image.brokers:
        return set()
    return {broker for record in topic.assignments for broker in record.replicas}


class _Stored(NamedTuple):
    """A key's record, and the revisions that created it and last modified it."""

    record: Record
    create_revision: int
    mod_revision: int


class ImageBuilder:
    """The keys as records, and their image."""

    def __init__(self, revision: int, pairs: Iterable[KeyValue]) -> None:
        """Builds the first image. Raises ValueError if the keys do not make a complete image."""
        self._stored = {
            pair.key: _Stored(
                records.read(pair.key, pair.value), pair.create_revision, pair.mod_revision
            )
            for pair in pairs
        }
        self.image = self._whole(revision)

    def apply(self, changes: Iterable[Change]) -> Image:
        """Returns the image after changes, which must be whole revisions later than the image.

        Raises ValueError if they do not make a complete image; then the image is unchanged.
        """
        changes = list(changes)
        if not changes:
            return self.image
        before = {change.key: self._stored.get(change.key) for change in changes}
        try:
            self._take(changes)
            self.image = self._next(changes[-1].revision, before)
        except ValueError:
            self._restore(before)
            raise
        return self.image

    def name_at(self, key: str) -> str | None:
        """Returns the name of the topic that has a key; None if there is none."""
        record = self._record(key)
        return record.name if isinstance(record, records.TopicRecord) else None

    def deletion(self, topic_id: UUID) -> DeletionRecord | None:
        """Returns the deletion of a topic whose logs may still exist; None if there is none."""
        record = self._record(records.deletion_key(topic_id))
        return record if isinstance(record, records.DeletionRecord) else None

    def _record(self, key: str) -> Record | None:
        stored = self._stored.get(key)
        return None if stored is None else stored.record

    def _take(self, changes: list[Change]) -> None:
        for change in changes:
            if change.value is None:
                self._stored.pop(change.key, None)
                continue
            before = self._stored.get(change.key)
            created = change.revision if before is None else before.create_revision
            record = records.read(change.key, change.value)
            self._stored[change.key] = _Stored(record, created, change.revision)

    def _restore(self, before: Mapping[str, _Stored | None]) -> None:
        for key, stored in before.items():
            if stored is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = stored

    def _whole(self, revision: int) -> Image:
        topics = [
            self._topic(stored.record)
            for stored in self._stored.values()
            if isinstance(stored.record, records.TopicRecord)
        ]
        return Image(
            revision,
            self._cluster_id(),
            MappingProxyType({topic.name: topic for topic in topics}),
            MappingProxyType({topic.topic_id: topic for topic in topics}),
            self._broker_configs(),
            self._next_producer_id(),
            self._deletions(),
            self._members(),
        )

    def _next(self, revision: int, before: Mapping[str, _Stored | None]) -> Image:
        """Returns the image after the records of some keys have changed from `before`."""
        topics, by_id = dict(self.image.topics), dict(self.image.topics_by_id)
        touched: dict[str, None] = {}  # in the order of the changes
        for key, stored in before.items():
            if key.startswith(records.TOPIC_PREFIX):
                touched[key] = None
                if stored is not None and isinstance(stored.record, records.TopicRecord):
                    del topics[stored.record.name], by_id[stored.record.topic_id]
            elif key.startswith(records.PARTITION_PREFIX):
                known = self.image.topics_by_id.get(records.partition_of(key)[0])
                if known is not None:
                    touched[records.topic_key(known.name)] = None
        for key in touched:
            record = self._record(key)
            if isinstance(record, records.TopicRecord):
                topics[record.name] = by_id[record.topic_id] = self._topic(record)
        touches_deletions = any(key.startswith(records.DELETION_PREFIX) for key in before)
        deletions = self._deletions() if touches_deletions else self.image.deletions
        touches_members = any(key.startswith(records.MEMBER_KEYS) for key in before)
        return Image(
            revision,
            self._cluster_id(),
            MappingProxyType(topics),
            MappingProxyType(by_id),
            self._broker_configs(),
            self._next_producer_id(),
            deletions,
            self._members() if touches_members else self.image.members,
        )

    def _topic(self, record: TopicRecord) -> Topic:
        """Returns a topic with its partitions. Partitions without a topic are not in the image."""
        assignments, revisions = [], []
        for index in range(record.partitions):
            found = self._stored.get(records.partition_key(record.topic_id, index))
            if found is None or not isinstance(found.record, records.PartitionRecord):
                raise ValueError(f"partition {record.name}-{index} is missing")
            assignments.append(found.record)
            revisions.append(found.mod_revision)
        if not assignments:
            raise ValueError(f"topic {record.name} has no partitions")
        return Topic(
            record.name, record.topic_id, tuple(assignments), record.configs, tuple(revisions)
        )

    def _cluster_id(self) -> str:
        record = self._record(records.CLUSTER)
        if not isinstance(record, records.ClusterRecord):
            raise _missing(records.CLUSTER)
        return record.cluster_id

    def _broker_configs(self) -> Mapping[str, str]:
        record = self._record(records.BROKER_CONFIGS)
        if not isinstance(record, records.BrokerConfigsRecord):
            raise _missing(records.BROKER_CONFIGS)
        return record.configs

    def _next_producer_id(self) -> int:
        record = self._record(records.PRODUCER_IDS)
        if not isinstance(record, records.ProducerIdsRecord):
            raise _missing(records.PRODUCER_IDS)
        return record.next_id

    def _deletions(self) -> MappingProxyType[UUID, str]:
        return MappingProxyType(
            {
                records.deletion_of(key): record.name
                for key, (record, _, _) in self._stored.items()
                if isinstance(record, records.DeletionRecord)
            }
        )

    def _members(self) -> Members:
        found = [
            (key, *stored)
            for key, stored in self._stored.items()
            if key.startswith(records.MEMBER_KEYS)
        ]
        if not found:
            return Members()
        from broker.metadata.members import members  # a broker that is alone has none

        return members(found)


def _missing(key: str) -> ValueError:
    return ValueError(f"key {key!r} is missing, which every store has")
