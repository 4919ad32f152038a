"""The controller's transactions: several under way, and none that is decided on something old."""

import asyncio
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace
from uuid import UUID

import pytest

from tidelog.broker.controller import controller
from tidelog.broker.controller.controller_loop import ControllerLoop
from tidelog.broker.metadata import records
from tidelog.broker.metadata.brokers.keys import CONTROLLER
from tidelog.broker.metadata.brokers.records import LiveBrokerRecord, put_controller, put_live
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.eligible_leaders import TopicRules
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.records import PartitionRecord, TopicRecord
from tidelog.broker.metadata.store import MOST_COMPARISONS, Delete
from tidelog.config import BrokerConfig
from tidelog.protocol.errors import KafkaStorageError

ID = UUID(int=1)
PARTITIONS = 1_200  # of which broker 3 leads a third
LEASE_MS = 60_000
PATIENCE_S = 20


class Rules:
    def __call__(self, _topic):
        return TopicRules(1)

    def keep_only(self, _topics):
        pass


class SlowStore(MemoryStore):
    """A store that notes what is under way; some transactions fail as told, by their numbers."""

    def __init__(self):
        super().__init__()
        self.under_way = self.most = self.sent = 0
        self.unknown, self.refused, self.elections = set(), set(), []

    async def transact(self, compares, operations):
        self.sent += 1
        number, self.under_way = self.sent, self.under_way + 1
        self.most = max(self.most, self.under_way)
        self.elections.append(len(operations))
        assert len(compares) <= MOST_COMPARISONS
        try:
            await asyncio.sleep(0.001)
            if number in self.refused:
                return None
            found = await super().transact(compares, operations)
            if number in self.unknown:
                raise KafkaStorageError("the answer is lost")
            return found
        finally:
            self.under_way -= 1


@pytest.fixture
async def store():
    store = SlowStore()
    await store.open()
    lease = await store.grant(LEASE_MS)
    begin = [*records.put_beginning("c"), put_controller(1, lease)]
    begin += [
        put_live(broker, LiveBrokerRecord(f"i{broker}", (), None, is_fenced=False), lease)
        for broker in (1, 2, 3)
    ]
    begin.append(records.put_topic(TopicRecord("t", ID, PARTITIONS, {})))
    for index in range(PARTITIONS):
        replicas = tuple((index + step) % 3 + 1 for step in range(3))
        record = PartitionRecord(replicas, replicas, replicas[0], 0)
        begin.append(records.put_partition(ID, index, record))
    for first in range(0, len(begin), 100):
        await MemoryStore.transact(store, (), begin[first : first + 100])
    return store


class Member:
    """Broker 1, whose session the test begins."""

    me, lease_id = 1, 1

    def __init__(self):
        self.epoch = -1
        self._begun = asyncio.Event()

    def now_ms(self):
        return 0

    def session_ended(self):
        pass

    async def session_changed(self, since):
        await (self._begun.wait() if since == 0 else asyncio.Event().wait())
        return 1

    def begin(self, epoch):
        self.epoch = epoch
        self._begun.set()


@asynccontextmanager
async def governing(store):
    """Lets broker 1 govern as soon as its session begins; yields it and the metadata."""
    metadata, member = ClusterMetadata(store), Member()
    await metadata.open()
    loop = ControllerLoop(
        SimpleNamespace(metadata=metadata, config=BrokerConfig()), member, Rules()
    )
    loop.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield member, metadata
    finally:
        await loop.stop()
        await metadata.close()


async def govern(store, *, until):
    """Lets broker 1 govern until something is so; returns the last image."""
    async with governing(store) as (member, metadata):
        member.begin(metadata.image.brokers[1].epoch)
        await MemoryStore.transact(store, (), (Delete("live/3"),))
        while not until(metadata.image):
            await metadata.newer_image(metadata.image.revision)
    return metadata.image


def is_done(image):
    return all(3 not in record.isr for record in image.topics["t"].assignments)


async def test_several_transactions_are_under_way_and_new_leaders_come_first(store, caplog):
    caplog.set_level(logging.INFO)
    image = await govern(store, until=is_done)
    assert 1 < store.most <= 8
    assert store.elections == [120, 120, 120, 40] + [120] * 6 + [80]
    assert all(record.leader in (1, 2) for record in image.topics["t"].assignments)
    assert {record.leader_epoch for record in image.topics["t"].assignments} == {0, 1}
    told = [each for each in caplog.records if each.message == "partitions changed"]
    assert sum(each.partitions for each in told) == PARTITIONS
    assert len(told) < 10, "a line for each new leader and each reason"
    assert all(each.logs.startswith("t-") for each in told)


async def test_elections_of_many_partitions_give_way_to_others(store, monkeypatch):
    next_state, decided, most = controller.next_state, [0], [0]

    def counted(*arguments):
        decided[0] += 1
        return next_state(*arguments)

    async def watch():
        while True:
            before = decided[0]
            await asyncio.sleep(0)
            most[0] = max(most[0], decided[0] - before)

    monkeypatch.setattr(controller, "next_state", counted)
    watching = asyncio.create_task(watch())
    await govern(store, until=is_done)
    watching.cancel()
    assert decided[0] >= PARTITIONS
    assert 0 < most[0] <= 250


@pytest.mark.parametrize("what", ["refused", "unknown"])
async def test_what_was_not_stored_is_decided_again(store, what, caplog):
    caplog.set_level(logging.CRITICAL)
    setattr(store, what, {2, 3, 6})
    image = await govern(store, until=is_done)
    epochs = [record.leader_epoch for record in image.topics["t"].assignments]
    assert sorted(epochs) == [0] * (PARTITIONS * 2 // 3) + [1] * (PARTITIONS // 3)
    if what == "refused":
        assert 60 in store.elections, "the next transactions are no smaller"
    assert all(record.leader in (1, 2) for record in image.topics["t"].assignments)


async def test_a_session_that_begins_is_enough_to_govern(store):
    async with governing(store) as (member, metadata):
        await MemoryStore.transact(store, (), (Delete(CONTROLLER),))
        revision = (await metadata.newer_image(metadata.image.revision)).revision
        for _ in range(20):
            await asyncio.sleep(0)  # it has seen that image, and waits
        assert store.sent == 0
        member.begin(metadata.image.brokers[1].epoch)
        assert (await metadata.newer_image(revision)).controller.broker == 1
