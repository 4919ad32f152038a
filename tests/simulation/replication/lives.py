"""`make simulate`: lives of a cluster by seeds, of simulated brokers and of the product's own.

`make simulate SEEDS=10000 FROM=1` plays them. A seed that breaks an invariant ends it with its trace
and exit status 1. `PLANT=list` names the mistakes that can be planted, `PLANT=name` plants one. Of
ten seeds one has simulated brokers on the product's storage, and one has brokers that are the
product's (`shells/`), half of them with their metadata in etcd; `STORAGE=virtual`, `STORAGE=real`,
`STORAGE=shells` and `STORAGE=etcd` choose for all seeds.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from tests.simulation.replication import world
from tests.simulation.replication.planted import PLANTED
from tests.simulation.replication.real.storage import ONE_IN, chosen_storage
from tests.simulation.replication.shells import life
from tests.simulation.replication.shells.planted import PLANTED_IN_SHELLS
from tests.simulation.seeds import play

if TYPE_CHECKING:
    from tests.simulation.replication.world import World


# A process that is killed leaves coroutines that have not begun.
warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def runs_shells(seed: int) -> bool:
    """Returns whether the brokers of a seed's cluster are the product's."""
    chosen = chosen_storage()
    return chosen in ("shells", "etcd") if chosen else seed % ONE_IN == ONE_IN // 2


def run(seed: int, plant: str | None = None) -> World:
    """Plays one seed; raises BrokenSeedError with its trace.

    A mistake is planted where it is one: in all brokers of a kind, for all seeds.
    """
    if plant in PLANTED_IN_SHELLS or (plant is None and runs_shells(seed)):
        return life.run(seed, plant)
    return world.run(seed, plant)


if __name__ == "__main__":
    try:
        chosen_storage()
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(play(run, [*PLANTED, *PLANTED_IN_SHELLS]))
