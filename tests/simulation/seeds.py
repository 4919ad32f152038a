"""Plays the seeds of a simulator on all cores, as FROM, SEEDS and PLANT in the environment say.

The first seed that breaks a promise ends it with its trace and exit status 1. `PLANT=list` prints the
mistakes that can be planted; a name that is none of them is exit status 2.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Run = Callable[[int, str | None], object]


class BrokenSeedError(AssertionError):
    """A promise was broken; the text is the seed's trace, the cause what was noticed."""


def play(run: Run, planted: Collection[str]) -> int:
    """Plays the seeds by `run(seed, plant)`, which raises BrokenSeedError.

    `run` is a function of a module, which other processes can import. Returns the exit status.
    """
    plant = os.environ.get("PLANT") or None
    if plant == "list":
        print(*planted, sep="\n")
        return 0
    if plant is not None and plant not in planted:
        print(f"PLANT={plant}: no such mistake; PLANT=list names them", file=sys.stderr)
        return 2
    first, count = int(os.environ.get("FROM", "1")), int(os.environ.get("SEEDS", "300"))
    began_s, seeds = time.monotonic(), range(first, first + count)
    failure = functools.partial(failure_of, run, plant)
    # Collections of garbage pass over the imported modules no more.
    with multiprocessing.get_context("spawn").Pool(initializer=gc.freeze) as pool:
        for seed, trace in zip(seeds, pool.imap(failure, seeds, chunksize=8), strict=True):
            if trace is not None:
                print(trace)
                return 1
            if (seed - first + 1) % 1_000 == 0:
                print(f"{seed - first + 1} seeds are clean", file=sys.stderr)
    print(f"{count} seeds from {first} on are clean, in {time.monotonic() - began_s:.1f} s")
    return 0


def failure_of(run: Run, plant: str | None, seed: int) -> str | None:
    """Returns the trace of a seed that breaks a promise; None if it breaks none."""
    try:
        run(seed, plant)
    except BrokenSeedError as error:
        where = traceback.format_exception(error.__cause__)[-3:]
        return "".join([str(error), "\n", *where])
    return None
