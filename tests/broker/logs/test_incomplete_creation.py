"""Creations that fail part-way while producers already send: what was acknowledged is never deleted."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker import asking
from tests.broker.logs.test_interrupted_changes import Broker
from tidelog.protocol.errors import BrokerError, KafkaStorageError, UnknownTopicOrPartition


async def produce(broker, index, name="t"):
    """Appends as Produce does; raises what it answers."""
    node = broker.node
    partition = node.partitions.leader(name, index, may_block=True)
    appended = node.appends.append(partition, asking.batch_of("a"), 7)
    return await appended if isinstance(appended, asyncio.Future) else appended


class Obstacle:
    """Somebody's directory where the log of a partition belongs, and a producer who is too early.

    While the broker tries to create that log, the producer sends to other partitions of the topic.
    """

    def __init__(self, broker, index, sends_to, name="t"):
        self.path = broker.directory / f"{name}-{index}"
        self.path.mkdir()
        self.acknowledged, self.refused = [], []
        self._broker, self._sends_to, self._name = broker, sends_to, name
        loop, create = asyncio.get_running_loop(), broker.store.create_partition

        def creating(topic, topic_id, number, *rest, **named):
            if (topic, number) == (name, index) and self.path.exists():
                asyncio.run_coroutine_threadsafe(self._send(), loop).result(20)
            return create(topic, topic_id, number, *rest, **named)

        broker.store.create_partition = creating

    async def _send(self):
        for index in self._sends_to:
            try:
                await produce(self._broker, index, self._name)
                self.acknowledged.append(index)
            except BrokerError as error:
                self.refused.append((index, type(error)))


async def test_a_topic_takes_no_records_before_all_its_logs_are_there(tmp_path):
    async with Broker(tmp_path) as broker:
        obstacle = Obstacle(broker, 2, sends_to=[0, 1])
        with pytest.raises(KafkaStorageError, match="t-2 cannot be created"):
            await broker.node.topics.create("t", partitions=4)
        assert obstacle.acknowledged == []
        assert obstacle.refused == [(0, UnknownTopicOrPartition), (1, UnknownTopicOrPartition)]
        assert broker.logs("t") == []
        obstacle.path.rmdir()
        await broker.node.topics.create("t", partitions=4)
        for index in range(4):
            await produce(broker, index)


async def test_added_partitions_take_no_records_before_all_are_there(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        obstacle = Obstacle(broker, 4, sends_to=[0, 1, 2, 3])
        with pytest.raises(KafkaStorageError, match="t-4 cannot be created"):
            await broker.node.topics.add_partitions("t", lambda _: 5)
        assert obstacle.acknowledged == [0, 1], "those that were there before are served"
        assert [index for index, _ in obstacle.refused] == [2, 3]
        assert broker.logs("t") == [0, 1]
        assert broker.node.partitions.get("t", 0).log_end_offset == 1
        obstacle.path.rmdir()
        await broker.node.topics.add_partitions("t", lambda _: 5)
        for index in range(5):
            await produce(broker, index)


async def test_logs_that_could_not_be_removed_are_served_once_the_topic_is_whole(tmp_path):
    async with Broker(tmp_path) as broker:
        obstacle = Obstacle(broker, 2, sends_to=[0, 1])
        delete, broker.store.delete_partition = broker.store.delete_partition, refuse
        broker.node.topics.admin.roll_back_topic = refuse_in_time
        with pytest.raises(KafkaStorageError):
            await broker.node.topics.create("t", partitions=3)
        broker.store.delete_partition = delete
        assert broker.logs("t") == [0, 1]
        with pytest.raises(UnknownTopicOrPartition):
            await produce(broker, 0)
        obstacle.path.rmdir()
        await broker.node.topics.create("another", partitions=1)  # a pass tries again
        for index in range(3):
            await produce(broker, index)


def refuse(*_arguments):
    raise KafkaStorageError("too many open files")


async def refuse_in_time(*_arguments):
    raise KafkaStorageError("unable to open database file")


async def test_no_pass_completes_a_topic_that_is_being_withdrawn(tmp_path):
    """Between the decision to withdraw it and the deletion, others let the reconciler run."""
    async with Broker(tmp_path) as broker:
        obstacle = Obstacle(broker, 2, sends_to=[])
        delete_topic, acknowledged = broker.metadata.delete_topic, []

        async def deleting(*arguments):
            obstacle.path.rmdir()
            await broker.metadata.create_topic("another", 1, {})
            await broker.node.topics.start()
            with pytest.raises(UnknownTopicOrPartition):
                acknowledged.append(await produce(broker, 0))
            return await delete_topic(*arguments)

        broker.metadata.delete_topic = deleting
        with pytest.raises(KafkaStorageError, match="t-2 cannot be created"):
            await broker.node.topics.create("t", partitions=3)
        assert acknowledged == []
        assert "t" not in broker.metadata.image.topics
        assert broker.logs("t") == []
        assert broker.logs("another") == [0]


async def test_no_pass_completes_partitions_that_are_being_withdrawn(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        obstacle = Obstacle(broker, 2, sends_to=[])
        set_partitions, calls = broker.metadata.set_partitions, []

        async def setting(*arguments, **named):
            calls.append(arguments)
            if len(calls) == 2:  # the withdrawal
                obstacle.path.rmdir()
                await broker.node.topics.reconciler.one_pass()  # as it retries at intervals
                with pytest.raises(UnknownTopicOrPartition):
                    await produce(broker, 1)
            return await set_partitions(*arguments, **named)

        broker.metadata.set_partitions = setting
        with pytest.raises(KafkaStorageError, match="t-2 cannot be created"):
            await broker.node.topics.add_partitions("t", lambda _: 4)
        assert len(calls) == 2
        assert broker.logs("t") == [0]
        await produce(broker, 0)


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_log_that_names_no_topic_is_not_served_or_named_before_its_topic_is_whole(
    tmp_path, is_open
):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        await produce(broker, 0)
        await broker.metadata.delete_topic("t")
        (topic_id,) = broker.metadata.image.deletions
        await broker.metadata.deletion_done(topic_id)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    async with Broker(tmp_path, forget_adoption) as broker:
        if is_open:
            broker.node.partitions.open_log("t", 0)
        obstacle = Obstacle(broker, 2, sends_to=[0])
        with pytest.raises(KafkaStorageError, match="t-2 cannot be created"):
            await broker.node.topics.create("t", partitions=3)
        assert obstacle.acknowledged == []
        assert broker.store.topic_id("t", 0) is None
        obstacle.path.rmdir()
        await broker.node.topics.create("t", partitions=3)
        await produce(broker, 0)
        assert broker.node.partitions.get("t", 0).log_end_offset == 2


def forget_adoption(broker):
    """Leaves logs without a topic to whoever creates their topic."""
    names = broker.store.names
    broker.store.names = lambda: [key for key in names() if key[0] != "t"]
