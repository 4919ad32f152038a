"""Builds images from the store's keys: the first one from all keys, the next ones from changes.

Images share what a change does not touch, so a change of one partition of thousands costs little.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.broker.metadata import records
from tidelog.broker.metadata.brokers.keys import MEMBER_KEYS
from tidelog.broker.metadata.brokers.members import Members
from tidelog.broker.metadata.image import Creation, Image, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from tidelog.broker.metadata.records import DeletionRecord, PartitionRecord, Record, TopicRecord
    from tidelog.broker.metadata.store import Change, KeyValue
    from tidelog.broker.quotas.entity import Quotas


_Value = TypeVar("_Value")


class _Stored(NamedTuple):
    """A key's record, and the revisions that created it and last modified it."""

    record: Record
    create_revision: int
    mod_revision: int


class ImageBuilder:
    """The keys as records, and their image. Unknown keys are left out."""

    def __init__(self, revision: int, pairs: Iterable[KeyValue]) -> None:
        """Builds the first image. Raises ValueError if the keys do not make a complete image."""
        self._stored = {
            pair.key: _Stored(
                records.read(pair.key, pair.value), pair.create_revision, pair.mod_revision
            )
            for pair in pairs
            if records.is_known(pair.key)
        }
        self.image = self._first_image(revision)

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
            self._store(changes)
            self.image = self._next_image(revision, before)
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

    def _store(self, changes: list[Change]) -> None:
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

    def _first_image(self, revision: int) -> Image:
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
            sum(_config_bytes(stored) for stored in self._stored.values()),
        )

    def _next_image(self, revision: int, before: Mapping[str, _Stored | None]) -> Image:
        """Returns the image after the records of some keys have changed from `before`."""
        # `copy` needs no hash of an id, as `dict` does of what is behind a proxy.
        topics, by_id = self.image.topics.copy(), self.image.topics_by_id.copy()
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
        touches_own_configs = any(key.startswith(records.OWN_CONFIGS_PREFIX) for key in before)
        touches_quotas = any(key.startswith(records.QUOTA_PREFIX) for key in before)
        touches_members = any(key.startswith(MEMBER_KEYS) for key in before)
        return Image(
            revision,
            self._cluster_id(),
            MappingProxyType(topics),
            MappingProxyType(by_id),
            self._broker_configs(),
            self._next_producer_id(),
            _updated(self.image.deletions, before, records.DELETION_PREFIX, self._deletion_at),
            self._members() if touches_members else self.image.members,
            _updated(self.image.creations, before, records.CREATION_PREFIX, self._creation_at),
            self._own_configs() if touches_own_configs else self.image.own_configs,
            self._quotas() if touches_quotas else self.image.quotas,
            self.image.config_bytes
            + sum(
                _config_bytes(self._stored.get(key)) - _config_bytes(stored)
                for key, stored in before.items()
            ),
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

    def _deletions(self) -> Mapping[UUID, str]:
        return _updated(
            MappingProxyType({}), self._stored, records.DELETION_PREFIX, self._deletion_at
        )

    def _deletion_at(self, key: str) -> tuple[UUID, str | None]:
        record = self._record(key)
        name = record.name if isinstance(record, records.DeletionRecord) else None
        return records.deletion_of(key), name

    def _creations(self) -> Mapping[UUID, Creation]:
        return _updated(
            MappingProxyType({}), self._stored, records.CREATION_PREFIX, self._creation_at
        )

    def _creation_at(self, key: str) -> tuple[UUID, Creation | None]:
        stored = self._stored.get(key)
        made = None
        if stored is not None and isinstance(stored.record, records.CreationRecord):
            made = Creation(stored.record, stored.mod_revision)
        return records.creation_of(key), made

    def _members(self) -> Members:
        found = [
            (key, *stored) for key, stored in self._stored.items() if key.startswith(MEMBER_KEYS)
        ]
        if not found:
            return Members()
        # not before there are any
        from tidelog.broker.metadata.brokers.stored_members import members

        return members(found)


def _config_bytes(stored: _Stored | None) -> int:
    """Returns the size, in bytes, of the settings in a key's record; 0 if the record has none."""
    record = None if stored is None else stored.record
    if isinstance(record, records.TopicRecord | records.BrokerConfigsRecord):
        return records.size_of(record.configs)
    return 0


def _updated(
    known: Mapping[UUID, _Value],
    keys: Iterable[str],
    prefix: str,
    read: Callable[[str], tuple[UUID, _Value | None]],
) -> Mapping[UUID, _Value]:
    """Returns the values of keys with a prefix, by topic id, after some of the keys have changed."""
    changed = [key for key in keys if key.startswith(prefix)]
    if not changed:
        return known
    after = dict(known)
    for key in changed:
        topic_id, value = read(key)
        after.pop(topic_id, None)
        if value is not None:
            after[topic_id] = value
    return MappingProxyType(after)


def _missing(key: str) -> ValueError:
    return ValueError(f"key {key!r} is missing, which every store has")
