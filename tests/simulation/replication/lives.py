"""`make simulate`: lives of a cluster by seeds.

`make simulate SEEDS=10000 FROM=1` plays them. A seed that breaks an invariant ends it with its trace
and exit status 1. `PLANT=list` names the mistakes that can be planted, `PLANT=name` plants one. The
metadata of every second seed are in etcd; `STORE=memory` and `STORE=etcd` choose for all seeds.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from tests.simulation.replication import life
from tests.simulation.replication.planted import PLANTED
from tests.simulation.replication.planted_around import PLANTED_AROUND
from tests.simulation.seeds import play

if TYPE_CHECKING:
    from tests.simulation.replication.life import Life

ALL_PLANTED = {**PLANTED, **PLANTED_AROUND}

# A process that is killed leaves coroutines that have not begun.
warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def run(seed: int, plant: str | None = None) -> Life:
    """Plays one seed, maybe with a mistake planted; raises BrokenSeedError with its trace."""
    return life.run(seed, None if plant is None else ALL_PLANTED[plant])


if __name__ == "__main__":
    try:
        life.chosen_store()
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(play(run, ALL_PLANTED))
