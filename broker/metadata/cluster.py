"""The cluster's metadata: the newest image, and the changes that can be made to it.

Every change is one compare-and-set transaction on the store. If the same keys have changed since
the image on which it was decided, the transaction fails without effect, and the change is decided
again. When a call returns, its change is durable and in the image. Changes of other brokers arrive
through the store's watch.

A client's mistake is raised as the BrokerError that the client gets. A store that fails raises
KafkaStorageError, and MetadataError if it cannot be opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from tidelog.broker.metadata import records, topic_writes
from tidelog.broker.metadata.brokers.departed import Departed
from tidelog.broker.metadata.image import Image, Topic, deleters
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.metadata.names import check_topic_name, new_id, written_id
from tidelog.broker.metadata.records import DeletionRecord, PartitionRecord, TopicRecord
from tidelog.broker.metadata.store import (
    MOST_OPERATIONS,
    Change,
    CompactedError,
    MetadataError,
    Put,
    WentBackError,
    absent,
    unchanged_since,
)
from tidelog.protocol.errors import (
    BrokerError,
    InvalidTopic,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.store import Compare, KeyValueStore, Operation, Snapshot
    from tidelog.protocol.topic_partition import TopicPartition

log = logging.getLogger("tidelog.metadata")

_WATCH_AGAIN_S = 1.0
MOST_CHANGES = MOST_OPERATIONS // 2
"""The most partitions that `put_partitions` changes at once: each needs two comparisons."""


def _has_no_revision(snapshot: Snapshot) -> bool:
    return snapshot.revision == 0


class ChangedMeanwhileError(Exception):
    """The data on which a change was decided has changed: decide again on the newest image."""


class ClusterMetadata:
    """The metadata of the cluster, in one store."""

    image: Image
    """The newest image; there is one from `open` on."""

    def __init__(
        self,
        store: KeyValueStore,
        node_id: int = 1,
        perhaps_dead: Callable[[], Collection[int]] = frozenset,
        is_new: Callable[[Snapshot], bool] = _has_no_revision,
    ) -> None:
        """`node_id` is this broker, which leads the partitions that are created here.

        `perhaps_dead` returns the brokers whose connections have just ended: if a broker has died, a
        change of the metadata follows in a moment. `is_new` returns whether a store with this content
        belongs to no cluster yet.
        """
        self.store = store
        self.node_id = node_id
        self.perhaps_dead = perhaps_dead
        self._is_new = is_new
        self._departed = Departed()
        self._builder: ImageBuilder | None = None
        self._newer = asyncio.Event()  # set, and replaced, when there is a newer image
        self._watch: asyncio.Task[None] | None = None
        self.went_back: str | None = None
        """A sentence if the store went back to an older revision, as after a restore; else None."""

    async def open(self) -> None:
        """Opens the store and reads it; a new store gets a cluster id.

        Raises MetadataError, also if a key is missing that every store has: a default in its place
        would allocate producer ids a second time, or lose settings that keep data.
        """
        await self.store.open()
        try:
            snapshot = await self.store.read()
            if self._is_new(snapshot):
                await self._initialize()
                snapshot = await self.store.read()
            self._builder = ImageBuilder(snapshot.revision, snapshot.pairs)
            self.image = self._builder.image
        except KafkaStorageError as error:
            await self.store.close()
            raise MetadataError(error.message) from None
        except ValueError as error:
            await self.store.close()
            raise MetadataError(f"the metadata is damaged: {error}") from None
        self._watch = asyncio.get_running_loop().create_task(self._run_watch())

    async def _initialize(self) -> None:
        """Writes the keys that every store has into a new one, unless another broker does so first."""
        await self.store.transact(
            absent(records.CLUSTER), records.put_beginning(written_id(new_id()))
        )

    async def close(self) -> None:
        """Finishes the changes in progress and closes the store."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None
        await self.store.close()

    async def newer_image(self, revision: int) -> Image:
        """Waits for an image that is newer than a revision, and returns it."""
        while self.image.revision <= revision:
            await self._newer.wait()
        return self.image

    # -- changes --------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Creates a topic that this broker leads; its settings are not checked here.

        Raises InvalidTopic, TopicAlreadyExists.
        """
        assignments = (PartitionRecord.led_by(self.node_id),) * partitions
        return await self.add_topic(Topic(name, topic_id or new_id(), assignments, dict(configs)))

    async def add_topic(self, topic: Topic, *, conditions: Sequence[Compare] = ()) -> Topic:
        """Stores a topic and returns it as stored.

        Raises InvalidTopic, TopicAlreadyExists, and ChangedMeanwhileError if one of the `conditions` is
        false: then the topic needs another id. Raises NotController for a large topic if this is one of
        several brokers and has no session.
        """
        self.check_name(topic.name)
        if await topic_writes.add(self, topic, conditions):
            return self.image.topics_by_id.get(topic.topic_id, topic)
        self.check_name(topic.name)
        raise ChangedMeanwhileError

    def check_name(self, name: str) -> None:
        """Checks that a new topic may have this name. Raises InvalidTopic, TopicAlreadyExists."""
        check_topic_name(name)
        if name in self.image.topics:
            raise TopicAlreadyExists(f"topic {name} exists")
        assert self._builder is not None
        other = self._builder.name_at(records.topic_key(name))
        if other is not None:
            raise InvalidTopic(
                f"topic name {name} collides with {other}: metrics cannot tell '.' from '_'"
            )

    async def set_partitions(
        self,
        name: str,
        partitions: int,
        *,
        since: Image | None = None,
        placed: Sequence[PartitionRecord] | None = None,
        conditions: Sequence[Compare] = (),
    ) -> Topic:
        """Sets a topic's number of partitions; this broker leads the new ones unless they are `placed`.

        Raises UnknownTopicOrPartition, and ChangedMeanwhileError if the topic has changed `since`, or one
        of the `conditions` is false.
        """
        while True:
            image = since or self.image
            topic = self._known(image, name)
            mine = PartitionRecord.led_by(self.node_id)
            added = [mine] * (partitions - topic.partitions) if placed is None else placed
            assignments = (topic.assignments + tuple(added))[:partitions]
            before = TopicRecord(name, topic.topic_id, topic.partitions, topic.configs)
            compares = unchanged_since(records.topic_key(name), image.revision)
            if partitions < topic.partitions:
                is_done = await topic_writes.shrink(self, before, partitions, compares)
            else:
                is_done = await topic_writes.grow(self, before, added, compares, conditions)
            if is_done:
                return topic._replace(assignments=assignments, mod_revisions=())
            if since is not None:
                raise ChangedMeanwhileError

    async def delete_topic(self, name: str, topic_id: UUID | None = None) -> Topic:
        """Deletes a topic and its settings from the metadata; returns the topic as it was.

        Its id is among the image's `deletions` until `deletion_done` reports that its logs are
        deleted. With `topic_id`, only the topic with that id is deleted, and no other topic of the
        name. Raises UnknownTopicOrPartition.
        """
        while True:
            image = self.image
            topic = self._known(image, name)
            if topic_id not in (None, topic.topic_id):
                raise UnknownTopicOrPartition(f"there is no topic {name} of that id")
            compares = unchanged_since(records.topic_key(name), image.revision)
            if await topic_writes.delete(self, topic, deleters(image, topic), compares):
                return topic

    async def deletion_done(self, topic_id: UUID, broker: int | None = None) -> None:
        """Records that this broker has deleted its logs of a deleted topic.

        The last of the brokers that had logs of it removes the deletion. `broker` stands for another
        broker, which is gone for good.
        """
        await topic_writes.deletion_done(self, topic_id, broker)

    def must_delete(self, topic_id: UUID) -> bool:
        """Returns whether this broker has still to delete its logs of a deleted topic."""
        deletion = self.deletion(topic_id)
        return deletion is not None and (not deletion.brokers or self.node_id in deletion.brokers)

    def deletion(self, topic_id: UUID) -> DeletionRecord | None:
        """Returns the pending deletion of a topic; None if there is none, or it is over."""
        assert self._builder is not None
        return self._builder.deletion(topic_id)

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, since: Image | None = None
    ) -> Topic:
        """Sets some of a topic's settings, or removes those that are None; does not check the values.

        Raises UnknownTopicOrPartition, and ChangedMeanwhileError if the topic has changed `since`.
        """
        while True:
            image = since or self.image
            topic = self._known(image, name)
            configs = _changed(topic.configs, changes)
            put = records.put_topic(TopicRecord(name, topic.topic_id, topic.partitions, configs))
            compares = unchanged_since(records.topic_key(name), image.revision)
            if await self._transact(compares, (put,)):
                return self.image.topics.get(name, topic._replace(configs=configs))
            if since is not None:
                raise ChangedMeanwhileError

    async def alter_broker_configs(
        self, changes: Mapping[str, str | None], *, since: Image | None = None
    ) -> None:
        """Sets some of the brokers' dynamic settings, or removes those that are None.

        Raises ChangedMeanwhileError if they have changed `since`.
        """
        while True:
            image = since or self.image
            put = records.put_broker_configs(_changed(image.broker_configs, changes))
            compares = unchanged_since(records.BROKER_CONFIGS, image.revision)
            if await self._transact(compares, (put,)):
                return
            if since is not None:
                raise ChangedMeanwhileError

    async def put_partitions(
        self, partitions: Mapping[TopicPartition, PartitionRecord], *, since: Image
    ) -> None:
        """Changes the assignments of partitions, all or none; (topic, partition) names each.

        At most MOST_CHANGES of them. Raises UnknownTopicOrPartition, and ChangedMeanwhileError if
        any has changed `since`.
        """
        compares: list[Compare] = []
        operations: list[Operation] = []
        for (name, index), record in partitions.items():
            topic_id = self._known(since, name).topic_id
            compares += unchanged_since(records.partition_key(topic_id, index), since.revision)
            operations.append(records.put_partition(topic_id, index, record))
        if not await self._transact(compares, operations):
            raise ChangedMeanwhileError

    async def allocate_producer_ids(self, count: int) -> range:
        """Returns a block of producer ids that are never allocated again."""
        assert count > 0, count
        while True:
            image = self.image
            first = image.next_producer_id
            compares = unchanged_since(records.PRODUCER_IDS, image.revision)
            if await self._transact(compares, (records.put_producer_ids(first + count),)):
                return range(first, first + count)

    # -- the image ------------------------------------------------------------------------------

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """Commits a change that was decided elsewhere, and updates the image.

        Returns the revision, or None if a comparison was false. Raises what the store's `transact`
        raises.
        """
        revision = await self.store.transact(compares, operations)
        await self.catch_up()
        return revision

    def assume(self, operations: Iterable[Operation]) -> None:
        """Changes the image alone, by what the store cannot take now; what it takes later overrides it.

        It is for keys of this broker, where nobody else uses the store. Raises KafkaStorageError.
        """
        at = self.image.revision
        self._build(
            [
                Change(at, each.key, each.value if isinstance(each, Put) else None)
                for each in operations
            ]
        )

    async def _transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> bool:
        """Commits and updates the image; returns False if a comparison was false."""
        return await self.transact(compares, operations) is not None

    def topic_name(self, topic_id: UUID) -> str:
        """Returns the name of the topic with an id. Raises UnknownTopicId."""
        name = self.image.topic_name(topic_id)
        if name is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return name

    async def catch_up(self) -> None:
        """Updates the image to the store's newest revision.

        A change that one broker has acknowledged is then in the image of another broker before that one
        decides its next change. Raises KafkaStorageError.
        """
        try:
            self._apply(await self.store.changes(self.image.revision))
        except CompactedError:
            await self.read_again()
        except WentBackError as error:
            self.went_back = error.message
            raise

    def _apply(self, changes: list[Change]) -> None:
        newer = [change for change in changes if change.revision > self.image.revision]
        if newer:
            self._build(newer)

    def _build(self, changes: list[Change]) -> None:
        assert self._builder is not None
        try:
            self._builder.apply(changes)
        except ValueError as error:
            raise KafkaStorageError(f"the metadata is damaged: {error}") from None
        self._replace_image(self._builder.image)

    def _replace_image(self, image: Image) -> None:
        """Replaces the image, and wakes those that wait for a newer one."""
        before, self.image = self.image, image
        if before.brokers is not image.brokers:
            self._departed.observe(before, image, asyncio.get_running_loop().time())
        self._newer.set()
        self._newer = asyncio.Event()

    def departed(self, within_s: float) -> list[LiveBroker]:
        """Returns brokers whose sessions ended within the last `within_s`, unless they have new ones."""
        if not self._departed:
            return []
        return self._departed.since(asyncio.get_running_loop().time() - within_s)

    async def read_again(self) -> None:
        """Makes the image of what the store has, without what was assumed. Raises KafkaStorageError."""
        snapshot = await self.store.read()
        if snapshot.revision < self.image.revision:
            return
        try:
            self._builder = ImageBuilder(snapshot.revision, snapshot.pairs)
        except ValueError as error:
            raise KafkaStorageError(f"the metadata is damaged: {error}") from None
        self._replace_image(self._builder.image)

    async def _run_watch(self) -> None:
        """Applies every change, of any broker, until the store is closed."""
        while True:
            try:
                async for changes in self.store.watch(self.image.revision):
                    self._apply(changes)
            except CompactedError:
                with contextlib.suppress(BrokerError):  # the next iteration tries again
                    await self.read_again()
                    continue
            except WentBackError as error:  # the store has logged it
                self.went_back = error.message
                return
            except BrokerError as error:
                log.warning("metadata watch failed, retrying", extra={"reason": error.message})
            else:
                return
            await asyncio.sleep(_WATCH_AGAIN_S)

    def _known(self, image: Image, name: str) -> Topic:
        topic = image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic


def _changed(configs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Returns settings after a change; None removes one."""
    merged = {**configs, **changes}
    return {name: value for name, value in merged.items() if value is not None}
