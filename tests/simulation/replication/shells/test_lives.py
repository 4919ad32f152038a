"""Lives of brokers of the product on virtual event loops, and mistakes planted in their shells."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.simulation.replication import lives
from tests.simulation.replication.checking.ledger import Ledger
from tests.simulation.replication.cluster.network import CALM
from tests.simulation.replication.shells.clients import Consumer
from tests.simulation.replication.shells.life import Life, has_etcd, run
from tests.simulation.replication.shells.planted import PLANTED_IN_SHELLS
from tests.simulation.replication.shells.process import Process
from tests.simulation.replication.world import lived
from tests.simulation.seeds import BrokenSeedError

SEEDS = [5, 15, 25]
LOSSY_SEEDS = [4, 27, 37, 38, 42]
COMPACTED_SEEDS = [5827, 7642]  # keys are compared while they are read again, and no member answers
ENOUGH = 200  # seeds, in which each mistake is caught
ROOT = Path(__file__).parents[4]
DIGEST = "from tests.simulation.replication.shells.life import run; print(run(5).timeline.digest())"


def test_no_seed_breaks_an_invariant():
    worlds = [run(seed) for seed in SEEDS]
    # The lives are worth something: records were acknowledged and read, and leaders changed.
    assert sum(world.checker.acknowledged for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.read for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.elections for world in worlds) > 2 * len(worlds)
    assert not any(world.storage.path.exists() for world in worlds)


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


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_gives_the_same_trace_whatever_hashes_are(hash_seed):
    made = subprocess.run(
        [sys.executable, "-c", DIGEST],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    first, again = run(5).timeline, run(5).timeline
    assert first.text() == again.text()
    assert first.steps == again.steps
    assert made.stdout.strip() == first.digest()


def test_every_tenth_seed_runs_the_shells(monkeypatch):
    monkeypatch.delenv("STORAGE", raising=False)
    assert [seed for seed in range(1, 31) if lives.runs_shells(seed)] == [5, 15, 25]
    assert isinstance(lives.run(5), Life)
    assert not isinstance(lives.run(6), Life)
    monkeypatch.setenv("STORAGE", "shells")
    assert lives.runs_shells(6)
    monkeypatch.setenv("STORAGE", "virtual")
    assert not lives.runs_shells(5)


def test_every_second_of_them_has_its_metadata_in_etcd(monkeypatch):
    monkeypatch.delenv("STORAGE", raising=False)
    assert [seed for seed in range(5, 60, 10) if has_etcd(seed)] == [15, 35, 55]
    monkeypatch.setenv("STORAGE", "etcd")
    assert lives.runs_shells(6)
    assert lives.run(6).etcd is not None


def test_an_etcd_that_loses_events_and_compacts_breaks_no_invariant():
    told = ""
    for seed in LOSSY_SEEDS:
        world = Life(seed, has_etcd=True)
        lived(world, seed)
        told += "\n".join(world.timeline.text())
    assert "etcd's watch has lost changes" in told
    assert "etcd has compacted changes" in told
    assert "member lags" in told


@pytest.mark.parametrize("seed", COMPACTED_SEEDS)
def test_a_watch_that_reads_all_keys_again_is_not_said_to_have_lost_changes(seed):
    world = Life(seed, has_etcd=True)
    lived(world, seed)
    told = "\n".join(world.timeline.text())
    assert "etcd has compacted changes" in told
    assert "etcd's watch has lost changes" not in told


@pytest.mark.parametrize("mistake", PLANTED_IN_SHELLS)
def test_a_planted_mistake_is_caught(mistake):
    for seed in (PLANTED_IN_SHELLS[mistake].known, *range(1, ENOUGH + 1)):
        try:
            run(seed, mistake)
        except BrokenSeedError:
            return
    pytest.fail("nobody noticed", pytrace=False)
