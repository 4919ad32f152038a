"""Lives of a cluster by seeds (world.py), and mistakes planted in it, each caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import sampled
from tests.simulation.replication.planted import PLANTED
from tests.simulation.replication.world import run
from tests.simulation.seeds import BrokenSeedError

SEEDS = range(1, 301)
ONE_IN = 3  # of them is played, unless every case is
PARTS = 6
ENOUGH = 200  # seeds, in which each mistake is caught
SEEDS_PLAYED_TWICE = [7, 10]  # with virtual logs, and with real storage
ROOT = Path(__file__).parents[3]
DIGEST = "from tests.simulation.replication.world import run; print(run({}).timeline.digest())"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant(part):
    worlds = [run(seed) for seed in sampled(SEEDS, ONE_IN)[part::PARTS]]
    # The lives are worth something: records were acknowledged and read, and leaders changed.
    assert sum(world.checker.acknowledged for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.read for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.elections for world in worlds) > 2 * len(worlds)
    assert sum(world.checker.committed for world in worlds) > 5 * len(worlds)


@pytest.mark.parametrize("seed", SEEDS_PLAYED_TWICE)
def test_a_seed_gives_the_same_trace_again(seed):
    first, again = run(seed), run(seed)
    assert first.timeline.text() == again.timeline.text()
    assert first.timeline.steps == again.timeline.steps
    assert contents(first) == contents(again)
    assert run(seed + 1).timeline.digest() != first.timeline.digest()


def contents(world):
    """The batches of all logs, with their checksums where they are stored, and their times."""
    return [
        (broker, key, log.batches, log.times, log.epochs) for broker, key, log in logs_of(world)
    ]


def test_every_tenth_seed_has_real_storage_which_is_removed(monkeypatch):
    worlds = {seed: run(seed) for seed in (9, 10)}
    assert worlds[9].storage is None
    storage = worlds[10].storage
    assert not storage.path.exists()
    assert any(log.batches[0].checksum for *_, log in logs_of(worlds[10]) if log.batches)
    monkeypatch.setenv("STORAGE", "virtual")
    assert run(10).storage is None
    monkeypatch.setenv("STORAGE", "real")
    assert run(9).storage is not None
    monkeypatch.setenv("STORAGE", "some")
    with pytest.raises(ValueError, match="STORAGE=some"):
        run(9)


def logs_of(world):
    return [
        (broker.id, key, log)
        for broker in world.brokers.values()
        for key, log in broker.disk.logs.items()
    ]


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
@pytest.mark.parametrize("seed", SEEDS_PLAYED_TWICE)
def test_a_seed_gives_the_same_trace_whatever_hashes_are(seed, hash_seed):
    made = subprocess.run(
        [sys.executable, "-c", DIGEST.format(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert made.stdout.strip() == run(seed).timeline.digest()


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(mistake):
    for seed in (PLANTED[mistake].known, *range(1, ENOUGH + 1)):
        try:
            run(seed, mistake)
        except BrokenSeedError as error:
            # These come from code that no longer fits what it is planted in, not from a checker.
            if isinstance(error.__cause__, TypeError | AttributeError | NameError):
                raise
            return
    pytest.fail("nobody noticed", pytrace=False)
