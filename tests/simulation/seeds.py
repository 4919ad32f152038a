"""Plays the seeds of a simulator on all cores, as FROM, SEEDS and BUG in the environment say.

The first seed that breaks a promise ends it with its trace and exit status 1. `BUG=list` prints the
bugs that can be injected; a name that is none of them is exit status 2.
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


def play(run: Run, injected: Collection[str]) -> int:
    """Plays the seeds by `run(seed, inject)`, which raises BrokenSeedError.

    `run` is a function of a module, which other processes can import. Returns the exit status.
    """
    inject = os.environ.get("BUG") or None
    if inject == "list":
        print(*injected, sep="\n")
        return 0
    if inject is not None and inject not in injected:
        print(f"BUG={inject}: no such mistake; BUG=list names them", file=sys.stderr)
        return 2
    first, count = int(os.environ.get("FROM", "1")), int(os.environ.get("SEEDS", "300"))
    began_s, seeds = time.monotonic(), range(first, first + count)
    failure = functools.partial(failure_of, run, inject)
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


def failure_of(run: Run, inject: str | None, seed: int) -> str | None:
    """Returns the trace of a seed that breaks a promise; None if it breaks none."""
    try:
        run(seed, inject)
    except BrokenSeedError as error:
        where = traceback.format_exception(error.__cause__)[-3:]
        return "".join([str(error), "\n", *where])
    return None
