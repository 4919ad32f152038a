"""Runs of a broker by seeds (runs.py), and mistakes injected in the product, each caught."""

from __future__ import annotations

import pytest

from tests.sampling import mostly_slow, sampled
from tests.simulation.clocks.injected import BUGS
from tests.simulation.clocks.runs import run
from tests.simulation.seeds import BrokenSeedError

SEEDS = range(1, 301)
ONE_IN = 5  # of them is played, unless every case is
PARTS = 4
RARE_HISTORIES = [
    *(3302, 4100),  # a leap that leapt again, before the right time was accepted
    3513,  # ahead across a restart of the machine, then slow, then right
    *(2140, 3221),  # trusted far ahead, then right before anything was appended
    3054,  # back, then right, then off: how long it was behind is not known
    *(6428, 6697),  # off after a step back; off before a wrong clock is read
    *(991, 3287, 5185, 6071),  # a producer in a snapshot of a clock that was behind
    *(1531, 2694),  # behind until a restart, a leap, then right
    6294,  # slow, then back with a restart, then right
    6714,  # slow from the first reading on, then a restart
    7287,  # off before a leap, which ended
    6903,  # back in two steps, then off, then accepted
    6585,  # reset by an operator while the log was empty
    *(7601, 11472),  # reset by an operator while the clock was right
    *(7761, 18142),  # a tombstone found while the clock was ahead
    *(10143, 14982),  # on several courses in turn, which overlap
    17374,  # fast, and a group read again
    *(14744, 15376),  # back before anything was written, or between rounds, then ahead
    8094,  # back, then fast, until a restart
    10461,  # slow, off, slow, then right
    11340,  # an append by a clock that went back and is not read yet
    16612,  # behind from the first reading on, corrected while it was off
    16820,  # adopted, then nothing appended
    17769,  # suspended when the clock was to be read
    17981,  # behind twice, the second time over a restart
    *(472, 648),  # wrong several times, with the machine off between
]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_a_promise(part):
    worlds = [run(seed) for seed in sampled(SEEDS, ONE_IN)[part::PARTS]]
    # The runs are worth something: records were deleted, and most were not.
    assert sum(world.model.deleted for world in worlds) > 10 * len(worlds)


@pytest.mark.parametrize("seed", mostly_slow(RARE_HISTORIES, 3))
def test_a_rare_history_of_the_clock_breaks_no_promise(seed):
    run(seed, blinks=False)


@pytest.mark.parametrize("mistake", mostly_slow(BUGS, 3))
def test_an_injected_bug_is_caught(mistake):
    injected = BUGS[mistake]
    for seed in (injected.known, *range(1, injected.seeds + 1)):
        try:
            run(seed, mistake, blinks=injected.blinks)
        except BrokenSeedError:
            return
    pytest.fail("nobody noticed", pytrace=False)
