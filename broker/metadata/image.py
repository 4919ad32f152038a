"""The image: the whole metadata at one revision, as one immutable value.

A reader of an image sees one consistent moment. `ImageBuilder` makes the first image from all keys
and the next ones from changes; images share what a change does not touch.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.metadata import records
from broker.metadata.store import Compare, Delete
from broker.quotas.entity import NO_QUOTAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from broker.metadata.brokers.members import Controller, LiveBroker, Offline, Registration
    from broker.metadata.records import (
        CreationRecord,
        DeletionRecord,
        PartitionRecord,
        Record,
        TopicRecord,
    )
    from broker.metadata.store import Change, KeyValue, Operation
    from broker.quotas.entity import Quotas

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


class Members(NamedTuple):
    """The brokers of the cluster, by broker id, and the controller (`brokers/members.py`)."""

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
    creations: Mapping[UUID, Creation] = _NONE  # that take several transactions; nobody sees them
    own_configs: Mapping[int, Mapping[str, str]] = _NONE  # of single brokers, by broker id
    quotas: Quotas = NO_QUOTAS  # of clients and addresses, by entity

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


def changed_partitions(image: Image, topic: Topic, before: Image | None) -> Sequence[int]:
    """Returns the numbers of the partitions of which an earlier image says something else.

    They are those whose assignments differ, and all if the topic's settings do, or there is none.
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
    """Returns the comparisons and operations by which a creation becomes a deletion.

    Its partitions then go as those of a topic that was deleted do. Nothing is done if the creation
    has ended meanwhile.
    """
    key = records.creation_key(topic_id)
    deletion = records.put_deletion(topic_id, creation.record.name)
    return (Compare(key, "mod", "=", creation.mod_revision),), (Delete(key), deletion)


class _Stored(NamedTuple):
    """A key's record, and the revisions that created it and last modified it."""

    record: Record
    create_revision: int
    mod_revision: int


class ImageBuilder:
    """The keys as records, and their image. Keys that are not known are left out."""

    def __init__(self, revision: int, pairs: Iterable[KeyValue]) -> None:
        """Builds the first image. Raises ValueError if the keys do not make a complete image."""
        self._stored = {
            pair.key: _Stored(
                records.read(pair.key, pair.value), pair.create_revision, pair.mod_revision
            )
            for pair in pairs
            if records.is_known(pair.key)
        }
        self.image = self._whole(revision)

    def apply(self, changes: Iterable[Change]) -> Image:
        """Returns the image after changes, which must be whole revisions later than the image.

        Raises ValueError if they do not make a complete image; then the image is unchanged.
        """
        changes = list(changes)
        if not changes:
            return self.image
        revision = changes[-1].revision
        changes = [change for change in changes if records.is_known(change.key)]
        before = {change.key: self._stored.get(change.key) for change in changes}
        try:
            self._take(changes)
            self.image = self._next(revision, before)
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
            self._creations(),
            self._own_configs(),
            self._quotas(),
        )

    def _next(self, revision: int, before: Mapping[str, _Stored | None]) -> Image:
        """Returns the image after the records of some keys have changed from `before`."""
        topics, by_id = dict(self.image.topics), dict(self.image.topics_by_id)
        # The topics of which something has changed, in the order of the changes, and the partitions
        # that have; None where the topic itself has.
        touched: dict[str, list[int] | None] = {}
        for key, stored in before.items():
            if key.startswith(records.TOPIC_PREFIX):
                touched[key] = None
                if stored is not None and isinstance(stored.record, records.TopicRecord):
                    del topics[stored.record.name], by_id[stored.record.topic_id]
            elif key.startswith(records.PARTITION_PREFIX):
                topic_id, index = records.partition_of(key)
                known = self.image.topics_by_id.get(topic_id)
                if known is not None:
                    indexes = touched.setdefault(records.topic_key(known.name), [])
                    if indexes is not None:
                        indexes.append(index)
        for key, indexes in touched.items():
            record = self._record(key)
            if isinstance(record, records.TopicRecord):
                known = None if indexes is None else topics.get(record.name)
                made = self._topic(record) if known is None else self._changed(known, indexes or ())
                topics[record.name] = by_id[record.topic_id] = made
        touches_deletions = any(key.startswith(records.DELETION_PREFIX) for key in before)
        deletions = self._deletions() if touches_deletions else self.image.deletions
        touches_creations = any(key.startswith(records.CREATION_PREFIX) for key in before)
        touches_own_configs = any(key.startswith(records.OWN_CONFIGS_PREFIX) for key in before)
        touches_quotas = any(key.startswith(records.QUOTA_PREFIX) for key in before)
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
            self._creations() if touches_creations else self.image.creations,
            self._own_configs() if touches_own_configs else self.image.own_configs,
            self._quotas() if touches_quotas else self.image.quotas,
        )

    def _topic(self, record: TopicRecord) -> Topic:
        """Returns a topic with its partitions. Partitions without a topic are not in the image."""
        assignments, revisions = [], []
        keys = records.partition_keys(record.topic_id)
        for index in range(record.partitions):
            assignment, mod_revision = self._partition(record.name, keys, index)
            assignments.append(assignment)
            revisions.append(mod_revision)
        if not assignments:
            raise ValueError(f"topic {record.name} has no partitions")
        return Topic(
            record.name, record.topic_id, tuple(assignments), record.configs, tuple(revisions)
        )

    def _changed(self, topic: Topic, indexes: Iterable[int]) -> Topic:
        """Returns a topic after some of its partitions have changed, and nothing else."""
        assignments, revisions = list(topic.assignments), list(topic.mod_revisions)
        keys = records.partition_keys(topic.topic_id)
        for index in indexes:
            if index < topic.partitions:  # others are being added, or removed
                assignments[index], revisions[index] = self._partition(topic.name, keys, index)
        return topic._replace(assignments=tuple(assignments), mod_revisions=tuple(revisions))

    def _partition(self, topic: str, keys: str, index: int) -> tuple[PartitionRecord, int]:
        found = self._stored.get(f"{keys}{index}")
        if found is None or not isinstance(found.record, records.PartitionRecord):
            raise ValueError(f"partition {topic}-{index} is missing")
        return found.record, found.mod_revision

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

    def _own_configs(self) -> Mapping[int, Mapping[str, str]]:
        return MappingProxyType(
            {
                records.own_configs_of(key): record.configs
                for key, (record, _, _) in self._stored.items()
                if key.startswith(records.OWN_CONFIGS_PREFIX)
                and isinstance(record, records.BrokerConfigsRecord)
            }
        )

    def _quotas(self) -> Quotas:
        return MappingProxyType(
            {
                records.quota_of(key): record.quotas
                for key, (record, _, _) in self._stored.items()
                if isinstance(record, records.QuotasRecord)
            }
        )

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

    def _creations(self) -> Mapping[UUID, Creation]:
        return MappingProxyType(
            {
                records.creation_of(key): Creation(record, mod_revision)
                for key, (record, _, mod_revision) in self._stored.items()
                if isinstance(record, records.CreationRecord)
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
        from broker.metadata.brokers.members import members  # a broker that is alone has none

        return members(found)


def _missing(key: str) -> ValueError:
    return ValueError(f"key {key!r} is missing, which every store has")
