"""The image: the whole metadata at one revision, as one immutable value.

A reader of an image sees one consistent moment. `ImageBuilder` makes the first image from all keys
and the next ones from changes; images share what a change does not touch.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from broker.metadata import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from broker.metadata.records import PartitionRecord, Record, TopicRecord
    from broker.metadata.store import Change, KeyValue


class Topic(NamedTuple):
    """One topic. `configs` are its own settings; `assignments` name the partitions' brokers."""

    name: str
    topic_id: UUID
    assignments: tuple[PartitionRecord, ...]
    configs: Mapping[str, str]

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.assignments)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of its first partition."""
        return len(self.assignments[0].replicas)


class Image(NamedTuple):
    """The whole metadata at one revision."""

    revision: int
    cluster_id: str
    topics: MappingProxyType[str, Topic]
    topics_by_id: MappingProxyType[UUID, Topic]
    broker_configs: Mapping[str, str]
    next_producer_id: int
    deletions: MappingProxyType[UUID, str]  # names of deleted topics whose logs may still be there

    def assignment(self, topic: str, index: int) -> PartitionRecord | None:
        """Returns the assignment of a partition; None if there is no such partition."""
        known = self.topics.get(topic)
        if known is None or not 0 <= index < len(known.assignments):
            return None
        return known.assignments[index]


class ImageBuilder:
    """The keys as records, and their image."""

    def __init__(self, revision: int, pairs: Iterable[KeyValue]) -> None:
        """Builds the first image. Raises ValueError if the keys do not make a complete image."""
        self._records: dict[str, Record] = {
            pair.key: records.read(pair.key, pair.value) for pair in pairs
        }
        self.image = self._whole(revision)

    def apply(self, changes: Iterable[Change]) -> Image:
        """Returns the image after changes, which must be whole revisions later than the image.

        Raises ValueError if they do not make a complete image; then the image is unchanged.
        """
        changes = list(changes)
        if not changes:
            return self.image
        before = {change.key: self._records.get(change.key) for change in changes}
        try:
            self._take(changes)
            self.image = self._next(changes[-1].revision, before)
        except ValueError:
            self._restore(before)
            raise
        return self.image

    def name_at(self, key: str) -> str | None:
        """Returns the name of the topic that has a key; None if there is none."""
        record = self._records.get(key)
        return record.name if isinstance(record, records.TopicRecord) else None

    def _take(self, changes: list[Change]) -> None:
        for change in changes:
            if change.value is None:
                self._records.pop(change.key, None)
            else:
                self._records[change.key] = records.read(change.key, change.value)

    def _restore(self, before: Mapping[str, Record | None]) -> None:
        for key, record in before.items():
            if record is None:
                self._records.pop(key, None)
            else:
                self._records[key] = record

    def _whole(self, revision: int) -> Image:
        topics = [
            self._topic(record)
            for record in self._records.values()
            if isinstance(record, records.TopicRecord)
        ]
        return Image(
            revision,
            self._cluster_id(),
            MappingProxyType({topic.name: topic for topic in topics}),
            MappingProxyType({topic.topic_id: topic for topic in topics}),
            self._broker_configs(),
            self._next_producer_id(),
            self._deletions(),
        )

    def _next(self, revision: int, before: Mapping[str, Record | None]) -> Image:
        """Returns the image after the records of some keys have changed from `before`."""
        topics, by_id = dict(self.image.topics), dict(self.image.topics_by_id)
        touched = set()
        for key, record in before.items():
            if key.startswith(records.TOPIC_PREFIX):
                touched.add(key)
                if isinstance(record, records.TopicRecord):
                    del topics[record.name], by_id[record.topic_id]
            elif key.startswith(records.PARTITION_PREFIX):
                known = self.image.topics_by_id.get(records.partition_of(key)[0])
                if known is not None:
                    touched.add(records.topic_key(known.name))
        for key in touched:
            record = self._records.get(key)
            if isinstance(record, records.TopicRecord):
                topics[record.name] = by_id[record.topic_id] = self._topic(record)
        touches_deletions = any(key.startswith(records.DELETION_PREFIX) for key in before)
        deletions = self._deletions() if touches_deletions else self.image.deletions
        return Image(
            revision,
            self._cluster_id(),
            MappingProxyType(topics),
            MappingProxyType(by_id),
            self._broker_configs(),
            self._next_producer_id(),
            deletions,
        )

    def _topic(self, record: TopicRecord) -> Topic:
        """Returns a topic with its partitions. Partitions without a topic are not in the image."""
        assignments = []
        for index in range(record.partitions):
            found = self._records.get(records.partition_key(record.topic_id, index))
            if not isinstance(found, records.PartitionRecord):
                raise ValueError(f"partition {record.name}-{index} is missing")  # noqa: TRY004
            assignments.append(found)
        if not assignments:
            raise ValueError(f"topic {record.name} has no partitions")
        return Topic(record.name, record.topic_id, tuple(assignments), record.configs)

    def _cluster_id(self) -> str:
        record = self._records.get(records.CLUSTER)
        if not isinstance(record, records.ClusterRecord):
            raise _missing(records.CLUSTER)
        return record.cluster_id

    def _broker_configs(self) -> Mapping[str, str]:
        record = self._records.get(records.BROKER_CONFIGS)
        if not isinstance(record, records.BrokerConfigsRecord):
            raise _missing(records.BROKER_CONFIGS)
        return record.configs

    def _next_producer_id(self) -> int:
        record = self._records.get(records.PRODUCER_IDS)
        if not isinstance(record, records.ProducerIdsRecord):
            raise _missing(records.PRODUCER_IDS)
        return record.next_id

    def _deletions(self) -> MappingProxyType[UUID, str]:
        return MappingProxyType(
            {
                records.deletion_of(key): record.name
                for key, record in self._records.items()
                if isinstance(record, records.DeletionRecord)
            }
        )


def _missing(key: str) -> ValueError:
    return ValueError(f"key {key!r} is missing, which every store has")
