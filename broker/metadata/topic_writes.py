"""Creates, grows and deletes topics in the store, in transactions of at most MOST_OPERATIONS operations.

A topic is in the image by its own key, which has its number of partitions. Where a change needs several
transactions, that key is written last if partitions are added, and first if they are removed. So nobody sees
a part of the change, and a crash in between leaves keys of partitions that belong to no topic:

- of a creation: the key `creation/ID` marks it meanwhile. When the session of its broker has ended before
  the creation, it becomes a deletion (`abandonment`);
- of a deletion: `deletion/ID` stays until all of them are deleted;
- beyond the partitions of a topic: the next ones overwrite them, and they are deleted with the topic.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.metadata import records
from tidelog.broker.metadata.image import Creation, abandonment
from tidelog.broker.metadata.records import CreationRecord
from tidelog.broker.metadata.store import (
    MOST_OPERATIONS,
    Compare,
    Delete,
    Put,
    absent,
    unchanged_since,
)
from tidelog.protocol.errors import BrokerError, NotController

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import DeletionRecord, PartitionRecord, TopicRecord
    from tidelog.broker.metadata.store import KeyValueStore, Operation


_OTHER_OPERATIONS = 2  # operations on other keys than those of partitions, in one transaction
_NO_SESSION = 0  # the epoch of an only broker that adopts logs before its session


class TopicStore(Protocol):
    """What writes topics: the metadata of the cluster (`cluster.py`)."""

    @property
    def image(self) -> Image:
        """The newest image."""

    @property
    def node_id(self) -> int:
        """This broker."""

    @property
    def store(self) -> KeyValueStore:
        """The store of the keys."""

    def deletion(self, topic_id: UUID) -> DeletionRecord | None:
        """Returns the deletion of a topic that is under way; None if there is none."""

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """Returns the revision of a transaction, which is in the image then; None if it failed."""


async def add(metadata: TopicStore, topic: Topic, conditions: Sequence[Compare]) -> bool:
    """Stores a new topic; returns False, and stores nothing, if its key exists or a condition is false.

    The id of a topic that is not stored must not be used again. Raises what the store raises; then the
    topic is stored or not. Raises NotController, and stores nothing, if this is one of several brokers,
    has no session, and the topic needs several transactions: a client that tries again finds the session,
    or another broker.
    """
    record = records.TopicRecord(topic.name, topic.topic_id, topic.partitions, topic.configs)
    compares = (*absent(records.topic_key(topic.name)), *conditions)
    *first, last = _batches(_puts(topic.topic_id, 0, topic.assignments))
    if not first:
        return await metadata.transact(compares, (records.put_topic(record), *last)) is not None
    live = metadata.image.brokers.get(metadata.node_id)
    if live is None and metadata.image.brokers:  # the controller would abandon it at once
        raise NotController("this broker has no session: it cannot create so many partitions now")
    epoch = _NO_SESSION if live is None else live.epoch
    creation = CreationRecord(topic.name, metadata.node_id, epoch)
    key = records.creation_key(topic.topic_id)
    put = records.put_creation(topic.topic_id, creation)
    revision = await metadata.transact(absent(key), (put, *first[0]))
    if revision is None:
        return False
    begun = Creation(creation, revision)
    mine = Compare(key, "mod", "=", revision)
    try:
        for batch in first[1:]:
            if await metadata.transact((mine,), batch) is None:
                return False  # it was abandoned
        end = (records.put_topic(record), Delete(key), *last)
        if await metadata.transact((mine, *compares), end) is not None:
            return True
    except BaseException:
        with contextlib.suppress(BrokerError):  # then the end of the session settles it
            await metadata.transact(*abandonment(topic.topic_id, begun))
        raise
    await metadata.transact(*abandonment(topic.topic_id, begun))
    return False


async def grow(
    metadata: TopicStore,
    before: TopicRecord,
    added: Sequence[PartitionRecord],
    compares: Sequence[Compare],
    conditions: Sequence[Compare],
) -> bool:
    """Adds partitions to a topic; returns False, and adds none, if a comparison is false.

    `compares` require that the topic has not changed. Each transaction writes the topic's key, so no
    other change of the topic comes in between. Raises what the store raises.
    """
    after = before._replace(partitions=before.partitions + len(added))
    *first, last = _batches(_puts(before.topic_id, before.partitions, added))
    for batch in first:
        revision = await metadata.transact(compares, (records.put_topic(before), *batch))
        if revision is None:
            return False
        compares = (Compare(records.topic_key(before.name), "mod", "=", revision),)
    put = records.put_topic(after)
    return await metadata.transact((*compares, *conditions), (put, *last)) is not None


async def shrink(
    metadata: TopicStore, before: TopicRecord, partitions: int, compares: Sequence[Compare]
) -> bool:
    """Removes a topic's last partitions; returns False if a comparison is false.

    Raises what the store raises.
    """
    after = before._replace(partitions=partitions)
    first, *rest = _batches(_deletes(before.topic_id, range(partitions, before.partitions)))
    revision = await metadata.transact(compares, (records.put_topic(after), *first))
    if revision is None:
        return False
    unchanged = Compare(records.topic_key(before.name), "mod", "=", revision)
    for batch in rest:
        if await metadata.transact((unchanged,), batch) is None:
            break  # it has grown again, over these partitions
    return True


async def delete(
    metadata: TopicStore, topic: Topic, brokers: set[int], compares: Sequence[Compare]
) -> bool:
    """Deletes a topic, whose logs these `brokers` delete; returns False if a comparison is false.

    Raises what the store raises.
    """
    first, *rest = _batches(_deletes(topic.topic_id, range(topic.partitions)))
    gone = Delete(records.topic_key(topic.name))
    deletion = records.put_deletion(topic.topic_id, topic.name, brokers)
    if await metadata.transact(compares, (gone, deletion, *first)) is None:
        return False
    await _while_deleted(metadata, topic.topic_id, rest)
    return True


async def abandon_creations(metadata: TopicStore) -> None:
    """Turns all unfinished creations of an earlier process into deletions; this broker is alone."""
    for topic_id, creation in metadata.image.creations.items():
        await metadata.transact(*abandonment(topic_id, creation))


async def inherit_deletions(metadata: TopicStore) -> None:
    """Has this broker delete the logs of which no broker that is known has to: its id was another one.

    Raises what the store raises.
    """
    registrations = metadata.image.registrations
    known = {
        metadata.node_id,
        *(id_ for id_, each in registrations.items() if each.record.directories),
    }
    for topic_id, name in metadata.image.deletions.items():
        deletion = metadata.deletion(topic_id)
        if deletion is not None and deletion.brokers and known.isdisjoint(deletion.brokers):
            put = records.put_deletion(topic_id, name, (metadata.node_id,))
            await metadata.transact((), (put,))


async def deletion_done(metadata: TopicStore, topic_id: UUID, broker: int | None) -> None:
    """Removes a broker from those that have to delete a topic's logs: this one, or another `broker`.

    The last of them ends the deletion. Raises what the store raises.
    """
    done = metadata.node_id if broker is None else broker
    while True:
        image, deletion = metadata.image, metadata.deletion(topic_id)
        if broker is not None and (deletion is None or broker not in deletion.brokers):
            return
        left = [] if deletion is None else [one for one in deletion.brokers if one != done]
        if deletion is None or not left:
            await _end_deletion(metadata, topic_id)
            return
        compares = unchanged_since(records.deletion_key(topic_id), image.revision)
        put = records.put_deletion(topic_id, deletion.name, left)
        if await metadata.transact(compares, (put,)) is not None:
            return


async def _end_deletion(metadata: TopicStore, topic_id: UUID) -> None:
    """Ends a deletion: removes the keys of partitions that are left, then the deletion's.

    Raises what the store raises.
    """
    left = await metadata.store.read(records.partition_keys(topic_id))
    await _while_deleted(metadata, topic_id, _batches([Delete(pair.key) for pair in left.pairs]))
    await metadata.transact((), (Delete(records.deletion_key(topic_id)),))


async def _while_deleted(
    metadata: TopicStore, topic_id: UUID, batches: Sequence[Sequence[Operation]]
) -> None:
    """Deletes keys of a deleted topic, until none is left or another broker has ended the deletion."""
    is_deleted = Compare(records.deletion_key(topic_id), "mod", ">", 0)
    for batch in batches:
        if batch and await metadata.transact((is_deleted,), batch) is None:
            return


def _batches(operations: Sequence[Operation]) -> list[Sequence[Operation]]:
    """Returns operations in parts that fit into a transaction; one part at least."""
    size = MOST_OPERATIONS - _OTHER_OPERATIONS
    starts = range(0, max(len(operations), 1), size)
    return [operations[start : start + size] for start in starts]


def _puts(topic_id: UUID, first: int, states: Sequence[PartitionRecord]) -> list[Operation]:
    """Returns the operations that write partitions. Thousands have few states: each is encoded once."""
    values: dict[PartitionRecord, bytes] = {}
    puts: list[Operation] = []
    keys = records.partition_keys(topic_id)
    for index, record in enumerate(states, first):
        value = values.get(record)
        if value is None:
            value = values[record] = records.put_partition(topic_id, index, record).value
        puts.append(Put(f"{keys}{index}", value))
    return puts


def _deletes(topic_id: UUID, indexes: range) -> list[Operation]:
    return [Delete(records.partition_key(topic_id, index)) for index in indexes]
