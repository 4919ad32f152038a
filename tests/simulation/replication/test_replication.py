"""Runs of a cluster by seeds (life.py), and mistakes injected in the product, each caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import mostly_slow, sampled
from tests.simulation.replication.life import run
from tests.simulation.replication.runs import ALL_BUGS
from tests.simulation.seeds import BrokenSeedError

SEEDS = range(1, 301)
ONE_IN = 8  # of them is played, unless every case is
PARTS = 3
ENOUGH = 200  # seeds, in which each mistake is caught
PLAYED_AGAIN = [4, 5]  # with the metadata in memory, and in etcd
ROOT = Path(__file__).parents[3]
DIGEST = "from tests.simulation.replication.life import run; print(run({}).timeline.digest())"


# A connection that breaks, and a process that is killed, leave coroutines that have not begun.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant(part):
    worlds = [run(seed) for seed in sampled(SEEDS, ONE_IN)[part::PARTS]]
    # The runs are worth something: records were acknowledged and read, and leaders changed. Of all samples
    # the poorest has 18 acknowledged records a run, and the mean is 39.
    assert sum(world.checker.acknowledged for world in worlds) > 15 * len(worlds)
    assert sum(world.checker.read for world in worlds) > 20 * len(worlds)
    assert sum(world.checker.elections for world in worlds) > 2 * len(worlds)
    with_groups = [world for world in worlds if world.has_groups]
    assert sum(world.checker.committed for world in with_groups) >= 5 * len(with_groups)
    assert not any(world.storage.path.exists() for world in worlds)


@pytest.mark.parametrize("seed", mostly_slow(PLAYED_AGAIN, 2))
def test_a_seed_gives_the_same_trace_whatever_hashes_are(seed):
    made = subprocess.run(
        [sys.executable, "-c", DIGEST.format(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    first, again = run(seed).timeline, run(seed).timeline
    assert first.text() == again.text()
    assert first.steps == again.steps
    assert made.stdout.strip() == first.digest()
    assert run(seed + 2).timeline.digest() != first.digest()


@pytest.mark.parametrize("mistake", mostly_slow(ALL_BUGS, len(ALL_BUGS)))
def test_an_injected_bug_is_caught(mistake):
    injected = ALL_BUGS[mistake]
    for seed in (injected.known, *range(1, ENOUGH + 1)):
        try:
            run(seed, injected)
        except BrokenSeedError as error:
            # These come from code that no longer fits what it is injected in, not from a checker.
            if isinstance(error.__cause__, TypeError | AttributeError | NameError):
                raise
            return
    pytest.fail("nobody noticed", pytrace=False)
