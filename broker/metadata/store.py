"""The contract of a metadata store.

A store keeps an `image`: one immutable value that holds everything the broker needs to answer from
memory. A change is first made durable, then a new image takes the old one's place, then the call
returns; whoever holds an image sees one consistent moment. Changes are awaited and happen one after
the other. What a client did wrong is raised as the BrokerError it should see; a store that cannot
keep its promise raises KafkaStorageError, and MetadataError if it cannot be opened at all.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

_NOTHING: Mapping[str, str] = MappingProxyType({})


class MetadataError(Exception):
    """The metadata cannot be opened; the text says why in one sentence."""


class Topic(NamedTuple):
    """One topic. `configs` are its own settings, as given."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = _NOTHING


class Image(NamedTuple):
    """Everything there is to know, at one moment."""

    cluster_id: str
    topics: MappingProxyType[str, Topic]
    topics_by_id: MappingProxyType[UUID, Topic]
    broker_configs: MappingProxyType[str, str]

    @classmethod
    def of(
        cls, cluster_id: str, topics: Iterable[Topic], broker_configs: Mapping[str, str]
    ) -> Image:
        """An image of these topics."""
        by_name = {topic.name: topic for topic in topics}
        by_id = {topic.topic_id: topic for topic in by_name.values()}
        return cls(
            cluster_id,
            MappingProxyType(by_name),
            MappingProxyType(by_id),
            MappingProxyType(dict(broker_configs)),
        )

    def with_topic(self, topic: Topic) -> Image:
        """This image with one topic more, or with a topic that has the same name and id replaced."""
        return self._replace(
            topics=MappingProxyType(self.topics | {topic.name: topic}),
            topics_by_id=MappingProxyType(self.topics_by_id | {topic.topic_id: topic}),
        )

    def without_topic(self, name: str) -> Image:
        """This image without a topic that it has."""
        topics, by_id = self.topics.copy(), self.topics_by_id.copy()
        del by_id[topics.pop(name).topic_id]
        return self._replace(topics=MappingProxyType(topics), topics_by_id=MappingProxyType(by_id))

    def with_broker_configs(self, configs: Mapping[str, str]) -> Image:
        """This image with other dynamic settings of the brokers."""
        return self._replace(broker_configs=MappingProxyType(dict(configs)))


class MetadataStore(Protocol):
    """What every metadata store does."""

    @property
    def image(self) -> Image:
        """The newest image; there is one from open() to close()."""
        ...

    async def open(self) -> None:
        """Make or read the metadata. Raises MetadataError."""
        ...

    async def close(self) -> None:
        """Let go of everything; changes under way are finished first."""
        ...

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        *,
        topic_id: UUID | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic with an id of its own; with `validate_only` only say what would be made.

        `topic_id` is for a topic that has one, which no other may have.
        Raises InvalidTopic for a name Kafka does not allow or that collides with another's, and
        TopicAlreadyExists.
        """
        ...

    async def set_partitions(self, name: str, partitions: int) -> Topic:
        """Have a topic count so many partitions. The number is not judged here.

        Raises UnknownTopicOrPartition.
        """
        ...

    async def delete_topic(self, name: str) -> Topic:
        """Forget a topic and its settings; returns what it was. Raises UnknownTopicOrPartition.

        Its id is among the `deleted_ids` until `deletion_done` says that its logs are gone.
        """
        ...

    async def deleted_ids(self) -> frozenset[UUID]:
        """The topics that were deleted and whose logs may still be there."""
        ...

    async def deletion_done(self, topic_id: UUID) -> None:
        """Note that no log of a deleted topic is left."""
        ...

    async def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        """Set some of a topic's settings, or remove those that are None.

        The values are not judged here. Raises UnknownTopicOrPartition.
        """
        ...

    async def alter_broker_configs(self, changes: Mapping[str, str | None]) -> None:
        """Set some of the brokers' dynamic settings, or remove those that are None."""
        ...

    async def allocate_producer_ids(self, count: int) -> range:
        """A block of producer ids that nobody has had or will have."""
        ...
