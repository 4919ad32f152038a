"""A broker's process whose machine loses its power: planted in it before it serves.

`plant` puts a `Disk` under storage. In the call that TIDELOG_POWER_CALL names, the process leaves one of
the states that its disk may be in then in the directory TIDELOG_POWER_TARGET, and is gone.
SQLite looks after its own file, which is left as it is.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.power_loss import Disk
from tidelog.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable


class MortalDisk(Disk):
    """A disk that takes its machine along; for several threads, one call at a time."""

    def __init__(self, root: Path, target: Path, call: int, *, syncs: bool) -> None:
        super().__init__(root)
        self._target, self._last_call = target, call
        self._lock = threading.RLock()
        if not syncs:
            self.skips = lambda path: path.suffix == ".log"

    def _begin(self) -> Callable[[], None]:
        if self.calls >= self._last_call:
            self.lose_power(self._target, random.Random(self._last_call))
            for path in self.root.glob("tidelog.sqlite*"):
                shutil.copy(path, self._target)
            os._exit(9)
        return super()._begin()


def _one_at_a_time(name: str) -> None:
    inherited = getattr(Disk, name)

    def call(self: MortalDisk, *arguments: Any) -> Any:
        with self._lock:
            return inherited(self, *arguments)

    setattr(MortalDisk, name, call)


for _name in (
    "open",
    "write",
    "sync",
    "sync_data",
    "sync_file_system",
    "truncate",
    "rename",
    "unlink",
    "make_directory",
    "remove_directory",
):
    _one_at_a_time(_name)


def plant() -> None:
    """Let storage deal with a disk that dies, as the environment says."""
    root = Path(os.environ["TIDELOG_POWER_ROOT"])
    target = Path(os.environ["TIDELOG_POWER_TARGET"])
    call = int(os.environ["TIDELOG_POWER_CALL"])
    syncs = os.environ["TIDELOG_POWER_SYNCS"] == "1"
    files.use(MortalDisk(root, target, call, syncs=syncs))
