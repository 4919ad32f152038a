"""Lives of a cluster by seeds (world.py), and mistakes planted in it, each caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.replication.planted import PLANTED
from tests.simulation.replication.world import run
from tests.simulation.seeds import BrokenSeedError

SEEDS = 300
PARTS = 6
ENOUGH = 200  # seeds, in which each mistake is caught
ROOT = Path(__file__).parents[3]
DIGEST = "from tests.simulation.replication.world import run; print(run(7).timeline.digest())"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant(part):
    worlds = [run(seed) for seed in range(1 + part, SEEDS + 1, PARTS)]
    # The lives are worth something: records were acknowledged and read, and leaders changed.
    assert sum(world.checker.acknowledged for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.read for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.elections for world in worlds) > 2 * len(worlds)


def test_a_seed_gives_the_same_trace_again():
    first, again = run(7), run(7)
    assert first.timeline.text() == again.timeline.text()
    assert first.timeline.steps == again.timeline.steps
    assert run(8).timeline.digest() != first.timeline.digest()


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_gives_the_same_trace_whatever_hashes_are(hash_seed):
    made = subprocess.run(
        [sys.executable, "-c", DIGEST],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert made.stdout.strip() == run(7).timeline.digest()


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(mistake):
    for seed in (PLANTED[mistake].known, *range(1, ENOUGH + 1)):
        try:
            run(seed, mistake)
        except BrokenSeedError:
            return
    pytest.fail("nobody noticed", pytrace=False)
