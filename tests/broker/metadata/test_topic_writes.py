"""Topics of many partitions: several transactions, of which nobody sees a part, also after a crash."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.broker.metadata import records, topic_writes
from tidelog.broker.metadata.brokers.records import (
    LiveBrokerRecord,
    RegistrationRecord,
    put_live,
    put_registration,
)
from tidelog.broker.metadata.cluster import ChangedMeanwhileError, ClusterMetadata
from tidelog.broker.metadata.image import Topic
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.records import (
    PARTITION_PREFIX,
    PartitionRecord,
    put_broker_configs,
    put_deletion,
)
from tidelog.broker.metadata.store import MOST_COMPARISONS, MOST_OPERATIONS, Compare, Put
from tidelog.protocol.errors import KafkaStorageError, NotController, TopicAlreadyExists

MANY = 1_000
LEAST_PARTS = -(-MANY // MOST_OPERATIONS)
CUTS = (0, 1, LEAST_PARTS - 1)  # how many transactions a process makes before it ends
TOPIC, OTHER = UUID(int=9), UUID(int=8)


class Watched(MemoryStore):
    """A store that builds an image after each transaction, and fails when a test says so."""

    def __init__(self):
        super().__init__()
        self.transactions, self.left = 0, None
        self.seen: list[int] = []  # how many partitions the topic t had, each time
        self.before = None  # called before each transaction

    async def transact(self, compares, operations):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KafkaStorageError("the process has ended")
        self.transactions += 1
        if self.before is not None:
            await self.before()
        done = await super().transact(compares, operations)
        snapshot = await self.read()
        topics = ImageBuilder(snapshot.revision, snapshot.pairs).image.topics
        self.seen.append(topics["t"].partitions if "t" in topics else 0)
        return done

    async def partition_keys(self):
        return len((await self.read(PARTITION_PREFIX)).pairs)

    def begin(self, left=None):
        self.transactions, self.left, self.seen = 0, left, []


@pytest.fixture
async def store():
    found = Watched()
    await found.open()
    return found


async def opened(store, broker=1):
    """The metadata as a process sees it that begins now."""
    store.left = None
    metadata = ClusterMetadata(store, broker)
    await metadata.open()
    store.begin()
    return metadata


def topic(partitions=MANY, topic_id=TOPIC):
    return Topic("t", topic_id, (PartitionRecord.led_by(1),) * partitions, {})


async def settle(metadata):
    """What a broker that is alone does at its start."""
    await topic_writes.abandon_creations(metadata)
    for topic_id in list(metadata.image.deletions):
        await metadata.deletion_done(topic_id)


async def test_a_store_takes_no_larger_transactions(store):
    metadata = await opened(store)
    await metadata.add_topic(topic(MOST_OPERATIONS - 2))
    assert store.transactions == 1
    many = [Compare(f"k{number}", "mod", "=", 0) for number in range(MOST_COMPARISONS + 1)]
    refused = "129 comparisons and 0 operations: a store takes at most 128 and 120"
    with pytest.raises(ValueError, match=refused):
        await store.transact(many, ())
    puts = [Put(f"k{number}", b"") for number in range(MOST_OPERATIONS + 1)]
    with pytest.raises(ValueError, match="0 comparisons and 121 operations"):
        await store.transact((), puts)
    assert await store.transact(many[:-1], ()) is not None


async def test_nobody_sees_a_part_of_a_topic(store):
    metadata = await opened(store)
    stored = await metadata.add_topic(topic())
    assert stored.partitions == MANY
    assert store.transactions == len(store.seen) == LEAST_PARTS
    assert set(store.seen[:-1]) == {0}
    assert store.seen[-1] == MANY
    assert not metadata.image.creations
    again = (await opened(store)).image.topics["t"]
    assert again.assignments == stored.assignments


@pytest.mark.parametrize("left", CUTS)
async def test_a_creation_that_is_cut_short_leaves_nothing(store, left):
    metadata = await opened(store)
    store.begin(left)
    with pytest.raises(KafkaStorageError):
        await metadata.add_topic(topic())
    assert set(store.seen) <= {0}
    metadata = await opened(store)
    assert len(metadata.image.creations) == (left > 0)
    await settle(metadata)
    assert await store.partition_keys() == 0
    assert not metadata.image.creations
    assert not metadata.image.deletions
    assert (await metadata.add_topic(topic())).partitions == MANY


async def test_a_creation_whose_last_transaction_is_refused_leaves_nothing(store):
    metadata = await opened(store)
    revision = metadata.image.revision
    conditions = (Compare("config/broker", "mod", "<", revision + 1),)

    async def configure():
        store.before = None
        await MemoryStore.transact(store, (), (put_broker_configs({"a": "b"}),))

    store.before = configure
    with pytest.raises(ChangedMeanwhileError):
        await metadata.add_topic(topic(), conditions=conditions)
    assert not metadata.image.creations
    assert set(metadata.image.deletions) == {TOPIC}
    await settle(metadata)
    assert await store.partition_keys() == 0


async def test_two_creations_of_one_name_leave_one_topic(store):
    first, second = await opened(store), await opened(store, 2)

    async def create():
        store.before = None
        await second.add_topic(topic(3, OTHER))

    store.before = create
    with pytest.raises(TopicAlreadyExists):
        await first.add_topic(topic())
    await settle(first)
    assert first.image.topics["t"].topic_id == OTHER
    assert await store.partition_keys() == 3


async def test_one_of_several_brokers_creates_a_large_topic_in_a_session_only(store):
    metadata = await opened(store)
    await metadata.transact((), (put_live(2, LiveBrokerRecord("of 2"), 0),))
    before = metadata.image.revision
    with pytest.raises(NotController, match="this broker has no session"):
        await metadata.add_topic(topic())
    assert metadata.image.revision == before
    assert await store.partition_keys() == 0
    await metadata.transact((), (put_live(1, LiveBrokerRecord("of 1"), 0),))
    assert (await metadata.add_topic(topic())).partitions == MANY


async def test_partitions_are_added_and_withdrawn_and_a_topic_is_deleted_all_at_once(store):
    metadata = await opened(store)
    await metadata.add_topic(topic(2))
    store.begin()
    await metadata.set_partitions("t", MANY)
    assert set(store.seen[:-1]) == {2}
    assert store.seen[-1] == MANY

    store.begin()
    await metadata.set_partitions("t", 3)
    assert set(store.seen) == {3}
    assert await store.partition_keys() == 3

    await metadata.set_partitions("t", MANY)
    store.begin()
    await metadata.delete_topic("t")
    assert set(store.seen) == {0}
    assert await store.partition_keys() == 0
    assert set(metadata.image.deletions) == {TOPIC}


@pytest.mark.parametrize("left", CUTS)
async def test_an_addition_that_is_cut_short_adds_nothing_and_can_be_repeated(store, left):
    metadata = await opened(store)
    await metadata.add_topic(topic(2))
    store.begin(left)
    with pytest.raises(KafkaStorageError):
        await metadata.set_partitions("t", MANY)
    metadata = await opened(store)
    assert metadata.image.topics["t"].partitions == 2
    led_by_7 = (PartitionRecord.led_by(7),) * 300
    grown = await metadata.set_partitions("t", 302, placed=led_by_7)
    assert metadata.image.topics["t"].assignments == grown.assignments
    assert {each.leader for each in grown.assignments[2:]} == {7}
    await metadata.delete_topic("t")
    await settle(metadata)
    assert await store.partition_keys() == 0


async def test_two_additions_at_once_do_not_mix(store):
    first, second = await opened(store), await opened(store, 2)
    await first.add_topic(topic(2))
    await second.catch_up()

    async def add():
        if store.transactions == 3:
            await second.set_partitions("t", MANY)

    store.begin()
    store.before = add
    with pytest.raises(ChangedMeanwhileError):
        await first.set_partitions("t", MANY, since=first.image)
    assert {each.leader for each in first.image.topics["t"].assignments[2:]} == {2}


@pytest.mark.parametrize("left", CUTS[1:])
async def test_a_deletion_that_is_cut_short_is_finished(store, left):
    metadata = await opened(store)
    await metadata.add_topic(topic())
    store.begin(left)
    with pytest.raises(KafkaStorageError):
        await metadata.delete_topic("t")
    metadata = await opened(store)
    assert "t" not in metadata.image.topics
    await settle(metadata)
    assert await store.partition_keys() == 0
    assert not metadata.image.deletions


async def test_the_states_of_many_partitions_are_written_out_once_each(store, monkeypatch):
    metadata = await opened(store)
    states = tuple(PartitionRecord.led_by(number % 3) for number in range(900))
    written, put_partition = [], records.put_partition

    def noted(*told):
        written.append(told)
        return put_partition(*told)

    monkeypatch.setattr(records, "put_partition", noted)
    await metadata.add_topic(Topic("t", TOPIC, states, {}))
    assert len(written) == 3
    assert (await opened(store)).image.topics["t"].assignments == states


async def test_a_deletion_is_inherited_of_a_broker_that_is_unknown_now(store):
    metadata = ClusterMetadata(store, 2)
    await metadata.open()
    registered = put_registration(3, RegistrationRecord("i", ("directory",)))
    earlier_id = put_registration(1, RegistrationRecord("j"))  # as an only broker
    of_one, of_three = (put_deletion(TOPIC, "t", {1}), put_deletion(OTHER, "o", {1, 3}))
    await metadata.transact((), (registered, earlier_id, of_one, of_three))
    await topic_writes.inherit_deletions(metadata)
    assert metadata.must_delete(TOPIC)
    assert not metadata.must_delete(OTHER)
    await metadata.close()
