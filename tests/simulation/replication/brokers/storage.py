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
from tidelog.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation import power_loss
    from tests.simulation.replication.life import Life
    from tidelog.protocol.wire import Buffer

_MEMORY = Path("/dev/shm")


class Router(files.System):
    """The disks of several machines, as one: what concerns a file goes to the disk that has it."""

    def __init__(self) -> None:
        self.disks: dict[Path, power_loss.Disk] = {}  # by the machine's directory
        self._opened: dict[int, files.System] = {}
        self._others = files.System()

    def _of(self, path: Path) -> files.System:
        for disk in self.disks.values():
            if disk.has(path):
                return disk
        return self._others

    def open(self, path: Path, flags: int) -> int:
        disk = self._of(path)
        number = disk.open(path, flags)
        self._opened[number] = disk
        return number

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        return self._opened[number].write(number, buffers, position)

    def sync(self, number: int) -> None:
        self._opened[number].sync(number)

    def sync_data(self, number: int) -> None:
        self._opened[number].sync_data(number)

    def truncate(self, path: Path, size: int) -> None:
        self._of(path).truncate(path, size)

    def rename(self, path: Path, target: Path) -> None:
        self._of(path).rename(path, target)

    def unlink(self, path: Path) -> None:
        self._of(path).unlink(path)

    def make_directory(self, path: Path) -> None:
        self._of(path).make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self._of(path).remove_directory(path)


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
