"""Groups through random schedules in simulation; planted bugs are caught.

The promises are in groups.py. TIDELOG_SCHEDULES says how many; the long profile has 1,000.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.groups import BrokenPromiseError, run

QUICK = int(os.environ.get("TIDELOG_SCHEDULES", "60"))
PLANTED = [
    "do not wait for members",
    "keep the generation",
    "anyone assigns",
    "any generation commits",
    "no fencing",
    "never expire",
]


def run_all(seeds, planted=()):
    return [run(seed, planted) for seed in seeds]


def test_random_schedules():
    worlds = run_all(range(QUICK))
    # The schedules are worth something: groups moved on, commits went in, brokers started again.
    assert sum(world.generations for world in worlds) > 5 * QUICK
    assert sum(max(world.highest.values()) for world in worlds) > 50 * QUICK
    assert any(world.restarts for world in worlds)


@pytest.mark.long
def test_a_thousand_schedules():
    run_all(range(1_000, 2_000))


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug):
    with pytest.raises(BrokenPromiseError):
        run_all(range(100), [bug])
