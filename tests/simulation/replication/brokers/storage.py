"""Where the disks of one simulated cluster lie: a directory in memory, removed at the end."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import uuid
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.simulation.replication.brokers.disk import ROOM_BYTES, Disk
from tests.storage.replicas.replica import Router
from tidelog.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.life import Life

_MEMORY = Path("/dev/shm")


class Storage:
    """The disks of a cluster; the product's storage uses them until `close`."""

    def __init__(self, world: Life) -> None:
        self._world = world
        is_writable = os.access(_MEMORY, os.W_OK)
        self.path = Path(tempfile.mkdtemp(prefix="simulated", dir=_MEMORY if is_writable else None))
        self._router = Router()
        self._before = files.use(self._router)
        names = random.Random(world.timeline.random.random())  # of deleted directories

        def name() -> uuid.UUID:
            return uuid.UUID(int=names.getrandbits(128))

        self._patches = [
            mock.patch.object(uuid, "uuid4", name),
            mock.patch.object(os, "statvfs", partial(self._room, os.statvfs)),
        ]
        for patch in self._patches:
            patch.start()

    def _room(self, ask: Callable[[Path], Any], path: Path) -> Any:
        """Says how much room there is where a path is."""
        for broker in self._world.brokers.values():
            if Path(path).is_relative_to(broker.disk.path):
                size = broker.disk.free_bytes
                return SimpleNamespace(f_frsize=1, f_bavail=size, f_blocks=ROOM_BYTES)
        return ask(path)

    def new_disk(self, broker: int) -> Disk:
        """Returns an empty disk of a broker."""
        pick = self._world.timeline.random
        changed = partial(self._world.touch, broker)
        return Disk(pick, changed, self.path / str(broker), self._router)

    def close(self) -> None:
        """Removes all files, and lets storage use the system again."""
        for patch in self._patches:
            patch.stop()
        files.use(self._before)
        shutil.rmtree(self.path)
