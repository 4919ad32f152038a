"""Where the real storage of one simulated cluster lies: a directory in memory, removed at the end.

Every tenth seed has real storage. `STORAGE=real`, `STORAGE=virtual`, `STORAGE=shells` and
`STORAGE=etcd` in the environment say what all seeds have.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.simulation.replication.real.disk import RealDisk
from tests.storage.replicas.replica import Router
from tidelog.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.world import World

ONE_IN = 10
_MEMORY = Path("/dev/shm")

# Crashes make storage warn all the time; without a handler the warnings would be printed.
logging.getLogger("tidelog").addHandler(logging.NullHandler())


def chosen_storage() -> str:
    """Returns what `STORAGE` in the environment says of all seeds; empty if nothing. Raises ValueError."""
    chosen = os.environ.get("STORAGE", "")
    if chosen not in ("", "real", "virtual", "shells", "etcd"):
        raise ValueError(f"STORAGE={chosen}: it is real, virtual, shells or etcd")
    return chosen


def has_real_storage(seed: int) -> bool:
    """Returns whether the simulated brokers of a seed's cluster have real storage."""
    chosen = chosen_storage()
    return chosen == "real" if chosen else seed % ONE_IN == 0


class Storage:
    """The disks of a cluster with real storage."""

    disk: type[RealDisk] = RealDisk

    def __init__(self, world: World) -> None:
        self._world = world
        is_writable = os.access(_MEMORY, os.W_OK)
        self.path = Path(tempfile.mkdtemp(prefix="simulated", dir=_MEMORY if is_writable else None))
        self._router = Router()
        self._before = files.use(self._router)
        names = random.Random(world.timeline.random.random())  # of deleted directories

        def name() -> uuid.UUID:
            return uuid.UUID(int=names.getrandbits(128))

        self._names = mock.patch.object(uuid, "uuid4", name)
        self._names.start()

    def new_disk(
        self, broker: Broker, pick: random.Random, changed: Callable[[str], None]
    ) -> RealDisk:
        """Returns an empty disk of a broker."""

        def now_ms() -> int:
            return broker.clock.wall_ms(self._world.timeline.now_ms)

        return self.disk(pick, changed, now_ms, self.path / str(broker.id), self._router)

    def close(self) -> None:
        """Removes all files, and lets storage use the system again."""
        self._names.stop()
        files.use(self._before)
        shutil.rmtree(self.path)
