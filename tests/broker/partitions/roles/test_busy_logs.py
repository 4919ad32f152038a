"""A log on which something still works, as one that is opened after a crash, holds up no other log."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.broker.partitions.inside import brokers, eventually, produce
from tidelog.broker.partitions.partition import ServedPartition


@pytest.fixture
def slow(monkeypatch):
    """A function that lets changes of a topic's role at broker 2 last until an event is set.

    It returns the event, and the list of such changes.
    """
    begin = ServedPartition._begin

    def lasts(topic):
        over, begun = asyncio.Event(), []

        async def late(self, *what):
            if self.topic == topic and self._context.cluster.me == 2:
                begun.append(self.name)
                await over.wait()
            await begin(self, *what)

        monkeypatch.setattr(ServedPartition, "_begin", late)
        return over, begun

    return lasts


@contextlib.asynccontextmanager
async def brokers_until(over, directory):
    """Brokers that can be stopped whatever happens."""
    async with brokers(directory) as three:
        try:
            yield three
        finally:
            over.set()


def log_of(broker, topic):
    """The id of the topic whose log a broker has by a name; None if it has none."""
    store = broker.node.store
    return store.topic_id(topic, 0) if 0 in store.indexes(topic) else None


async def test_a_deleted_topic_whose_log_is_in_use_holds_up_no_other_one(tmp_path, slow):
    over, begun = slow("slow")
    async with brokers_until(over, tmp_path) as three:
        before = await three.create("slow")
        await eventually(lambda: begun)
        await three.any.node.metadata.delete_topic("slow")
        again = await three.create("slow")
        await three.create("other")
        await produce(three[1], "other", b"x")
        await eventually(lambda: three[2].log("other").log_end_offset == 1)
        assert log_of(three[2], "slow") == before.topic_id
        over.set()
        await eventually(lambda: log_of(three[2], "slow") == again.topic_id)
        assert (await produce(three[1], "slow", b"y")).error_code == 0
        await eventually(lambda: three[2].log("slow").log_end_offset == 1)
        assert not list((tmp_path / "logs-2").glob("*-stray"))


async def test_a_replica_that_was_moved_away_while_its_log_is_in_use_holds_up_no_other_one(
    tmp_path, slow
):
    over, begun = slow("slow")
    async with brokers_until(over, tmp_path) as three:
        await three.create("slow")
        await eventually(lambda: begun)
        await three.put("slow", replicas=(1, 3), isr=(1, 3))
        await three.create("other")
        await produce(three[1], "other", b"x")
        await eventually(lambda: three[2].log("other").log_end_offset == 1)
        assert log_of(three[2], "slow") is not None
        over.set()
        await eventually(lambda: log_of(three[2], "slow") is None)
