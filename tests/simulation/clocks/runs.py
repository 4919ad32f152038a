"""The clock simulator: right whatever any clock says, tried with seeds.

A run is a broker with one partition through random steps: producers with every kind of wrong stamp, in
all formats; a clock that jumps, stands still, goes too fast or too slow, or is at 1970 until it is set right;
settings that change; rounds of retention; restarts, cleanly or not, of the broker and of the
machine; directories that are adopted with dates of another time. A model that knows the true
time of everything judges after each round:

- P1: no time policy deletes a record earlier than its own times allow, and with retention.ms each is gone
  by its append time + retention.ms + segment.ms.
- P2: a clock that was wrong has deleted nothing that a right clock would have kept.
- P3: what is adopted is judged by its records' times and by when it was adopted.
- P4: explain names what each segment waits for; a round deletes exactly what explain said before.

Runs beside it, with clocks of their own (`beside.py`), try what else expires, and lookups.

Run `make simulate-clocks SEEDS=20000 FROM=1`. A seed that breaks a promise ends it with its trace and
exit status 1. `BUG=list` names the bugs that can be injected, `BUG=name` injects one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.simulation.clocks.beside import lives
from tests.simulation.clocks.injected import BUGS, injected
from tests.simulation.clocks.world import World
from tests.simulation.disks import Unsynced
from tests.simulation.seeds import BrokenSeedError, play
from tidelog.storage import files

STEPS = 40
_TRACE_LINES = 60


def run(seed: int, inject: str | None = None, *, blinks: bool | None = None) -> World:
    """Plays one run; raises BrokenSeedError with its trace.

    `blinks`: whether clocks are also wrong for moments; by default in every second life.
    """
    blinks = random.Random(f"blinks {seed}").random() < 0.5 if blinks is None else blinks
    before = files.use(Unsynced())
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    path = Path(tempfile.mkdtemp(prefix="clocks", dir=_directory()))
    main: World | None = None
    world: Any = None
    try:
        with injected(inject):
            main = world = World(path / "data", seed, blinks=blinks)
            main.live(STEPS)
            for world in lives(path, seed, blinks=blinks):
                world.live()
            return main
    except Exception as error:
        said = [] if world is None else world.trace
        raise BrokenSeedError(
            "\n".join([f"FROM={seed} SEEDS=1:", *said[:1], *said[1:][-_TRACE_LINES:], repr(error)])
        ) from error
    finally:
        if main is not None:
            with contextlib.suppress(Exception):
                main.store._release()
        files.use(before)
        logging.disable(disabled)
        shutil.rmtree(path)


def _directory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    sys.exit(play(run, BUGS))
