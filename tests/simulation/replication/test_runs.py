"""What a run is made of: its virtual loops, its consumers, and where its metadata are."""

from __future__ import annotations

import inspect
from uuid import UUID

import pytest

from tests.simulation.replication.brokers.process import Process
from tests.simulation.replication.checking.ledger import Ledger
from tests.simulation.replication.clients import Consumer
from tests.simulation.replication.life import Life, has_etcd, lived, run, uncollected
from tests.simulation.replication.network.network import CALM

LOSSY_SEEDS = [1, 17, 20, 32, 42]

# A connection that breaks, and a process that is killed, leave coroutines that have not begun.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def test_a_consumer_is_given_nothing_of_a_deleted_topic_of_the_same_name():
    life = Life(5)
    try:
        life.faults.is_over = life.administrators.is_over = True
        life.network.weather, life.coordinator.forgets_answers = CALM, 0.0
        life.timeline.run_until(6_000, life._after_event)
        consumer = next(each for each in life.clients if isinstance(each, Consumer) and each.offset)
        leader = life.checker.stored.parts[consumer.key].leader
        created_again = UUID(int=1)  # the leader has not heard of it, and has the one before
        life.add_topic(created_again, consumer.index + 1)
        consumer.is_stopped = True
        consumer.key, consumer.offset = life.key_of(created_again, consumer.index), 0
        life.checker.stored.ledgers[consumer.key] = Ledger("created again")
        loop = consumer.process.loop
        reading = loop.create_task(consumer._read(leader))
        life.timeline.run_until(8_000, life._after_event)
        assert reading.done()
        assert consumer.offset == 0
    finally:
        life.close()


def test_what_is_begun_while_the_dead_are_buried_is_closed():
    life = Life(5)
    try:
        process = Process(life, 9)
        loop, begun = process.loop, []

        async def last_words():
            """Nobody hears them."""

        async def waits():
            try:
                await loop.create_future()
            finally:
                begun.append(last_words())
                await loop.create_task(begun[0])

        loop.create_task(waits())
        loop._turn()
        process.die()
        loop.bury()
        assert [inspect.getcoroutinestate(each) for each in begun] == [inspect.CORO_CLOSED]
    finally:
        life.close()


def test_every_second_life_has_its_metadata_in_etcd(monkeypatch):
    monkeypatch.delenv("STORE", raising=False)
    assert [seed for seed in range(1, 7) if has_etcd(seed)] == [1, 3, 5]
    monkeypatch.setenv("STORE", "etcd")
    assert has_etcd(6)
    monkeypatch.setenv("STORE", "memory")
    assert not has_etcd(5)
    monkeypatch.setenv("STORE", "some")
    with pytest.raises(ValueError, match="STORE=some"):
        run(5)


def test_an_etcd_that_loses_events_and_compacts_breaks_no_invariant():
    told = ""
    for seed in LOSSY_SEEDS:
        with uncollected():
            world = lived(Life(seed, has_etcd=True), seed)
        told += "\n".join(world.timeline.text())
    assert "etcd watch lost changes" in told
    assert "etcd compacted changes" in told
    assert "member lags" in told
