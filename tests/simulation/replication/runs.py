"""`make simulate`: runs of a cluster by seeds.

`make simulate SEEDS=10000 FROM=1` plays them. A seed that breaks an invariant ends it with its trace
and exit status 1. `BUG=list` names the bugs that can be injected, `BUG=name` injects one. The
metadata of every second seed are in etcd; `STORE=memory` and `STORE=etcd` choose for all seeds.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from tests.simulation.replication import life
from tests.simulation.replication.injected import BUGS
from tests.simulation.replication.injected_around import BUGS_AROUND
from tests.simulation.seeds import play

if TYPE_CHECKING:
    from tests.simulation.replication.life import Life

ALL_BUGS = {**BUGS, **BUGS_AROUND}

# A process that is killed leaves coroutines that have not begun.
warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def run(seed: int, inject: str | None = None) -> Life:
    """Plays one seed, maybe with a mistake injected; raises BrokenSeedError with its trace."""
    return life.run(seed, None if inject is None else ALL_BUGS[inject])


if __name__ == "__main__":
    try:
        life.chosen_store()
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(play(run, ALL_BUGS))
