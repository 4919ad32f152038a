"""The log directory of a machine: it loses power, is full, or fails, as the faults say.

A process that dies leaves what it has written; a machine that dies leaves any state that the disk
may be in by what was synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING

from tests.simulation import power_loss
from tidelog.storage.directory import registration_file
from tidelog.storage.directory.registration_file import RegistrationFileError
from tidelog.storage.directory.store import LogStore
from tidelog.storage.filenames import LOG_SUFFIX

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.simulation.replication.brokers.logs import StoredLog
    from tests.simulation.replication.brokers.storage import Router
    from tidelog.config import BrokerConfig
    from tidelog.protocol.wire import Buffer

FAR_MS = 1 << 40  # no record is as far ahead of its append, and no producer is as old
ROOM_BYTES = 1 << 40


class Power(power_loss.Disk):
    """A disk that loses power, and may be full or fail until then.

    A full disk may refuse to overwrite what is there, as one that copies on write does, but it does
    so as a whole: only what makes a file longer is written in part.
    """

    room: int | None = None  # bytes that may still be written; None: plenty
    failing: frozenset[str] = frozenset()  # files, and directories with logs, whose syncs fail

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.room is None:
            return super().write(number, buffers, position)
        data, there = b"".join(buffers), max(os.fstat(number).st_size - position, 0)
        if self.room < max(min(there, len(data)), 1):
            raise OSError(errno.ENOSPC, "No space left on device")
        data = data[: self.room]
        self.room -= len(data)
        return super().write(number, (data,), position)

    def sync(self, number: int) -> None:
        path, _ = self._files[number]
        is_log = path.suffix == LOG_SUFFIX and path.parent.name in self.failing
        if is_log or path.name in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(number)

    def lose_bytes(self, target: Path, pick: random.Random, failed: Iterable[str]) -> None:
        """Makes in `target` what a process finds after syncs in some directories have failed.

        Their files have any of the bytes that were not synced; all names are there.
        """
        styles = pick.choice([["old"], ["new"], ["old", "new"], ["first"]])
        self._restore(self._top, target, pick, ["new"], _always)
        for name in failed:
            directory = self._top.now.get(name)
            if directory is not None:
                shutil.rmtree(target / name)
                self._restore(directory, target / name, pick, styles, _always)


class Disk:
    """One log directory after another: a machine that died has another state of it."""

    def __init__(
        self, pick: random.Random, changed: Callable[[str], None], path: Path, router: Router
    ) -> None:
        """`changed` hears of each change of a log, by its key."""
        self.pick = pick
        self.changed = changed
        self.logs: dict[str, StoredLog] = {}  # as a process has them, or had them when it died
        self._router = router
        self._path = path
        self._count = 0  # of directories
        self._store: LogStore | None = None
        self._is_full = False
        self._begin_directory()

    @property
    def path(self) -> Path:
        """The directory that the disk has now."""
        return self._path / str(self._count)

    def _begin_directory(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._power = Power(self.path)
        self._router.disks[self._path] = self._power
        self.is_full = self._is_full

    def _replace_directory(self, make: Callable[[Path], object]) -> None:
        before = self.path
        self._count += 1
        make(self.path)
        shutil.rmtree(before)
        self._begin_directory()

    def new_store(self, boot_id: str, config: BrokerConfig) -> LogStore:
        """Returns the store of a process that starts."""
        self._store = LogStore(
            [self.path],
            default_config=config.topic_defaults,
            producer_id_expiration_ms=FAR_MS,
            boot_id=boot_id,
        )
        return self._store

    # --- what its directory says ------------------------------------------------------------------

    @property
    def is_flushed(self) -> bool:
        """Whether the last process stopped in order, with everything flushed."""
        state = self._registered()
        return state is None or state.is_stopped

    def note_failure(self) -> None:
        """Writes down that a log has failed, as its process would have done.

        One that dies before is not simulated: it would start clean, and nobody could know better.
        """
        state, room = self._registered(), self._power.room
        if state is not None and not state.has_failed:
            self._power.room = None
            registration_file.write_state(self.path, state._replace(has_failed=True))
            self._power.room = room

    def _registered(self) -> registration_file.DirectoryState | None:
        try:
            return registration_file.read_state(self.path)
        except RegistrationFileError:
            return None

    # --- when it fails ----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether it has no room, or soon has none."""
        return self._is_full

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        self._is_full = is_full
        self._power.room = self.pick.choice([0, 40, 400]) if is_full else None

    @property
    def free_bytes(self) -> int:
        """How much room the system says there is."""
        return 0 if self._is_full else ROOM_BYTES

    @property
    def is_off(self) -> bool:
        """Whether it has lost power in the middle of a call."""
        return self._power.is_off

    def stop_after(self, calls: int | None) -> None:
        """Stops everything in the middle of a call that storage will make; None: does not."""
        self._power.fails_at = None if calls is None else self._power.calls + calls
        self._power.failing_call_counts = self.pick.random() < 0.5

    def fail_syncs(self, names: Iterable[str]) -> None:
        """Lets the syncs of files fail from now on, and of the logs in directories."""
        self._power.failing = frozenset(names)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Lets the checker read: nothing stops meanwhile."""
        power = self._power
        fails_at, power.fails_at, calls = power.fails_at, None, power.calls
        yield
        power.fails_at = None if fails_at is None else fails_at + power.calls - calls

    def repair(self) -> None:
        """Lets it have room, and fail no more."""
        self.is_full = False
        self.fail_syncs(())
        self.stop_after(None)

    # --- processes and machines -------------------------------------------------------------------

    def kill(self) -> None:
        """The process has died; what it has written is there."""
        self._power.is_off, self._power.fails_at = False, None
        self._power.failing = frozenset()
        if self._store is not None:
            self._store._release()
            self._store = None
        for log in self.logs.values():
            log.changed()

    def lose_power(self) -> str:
        """The machine has died; returns how what it finds was chosen."""
        said: list[str] = []
        self._replace_directory(
            lambda target: said.append(self._power.lose_power(target, self.pick))
        )
        return said[0]

    def lose_failed(self, directories: Iterable[str]) -> None:
        """The system has dropped what the syncs of some directories could not write."""
        self._replace_directory(
            lambda target: self._power.lose_bytes(target, self.pick, directories)
        )

    def wipe(self) -> None:
        """Another, empty disk is in its place."""
        self.logs.clear()
        self._replace_directory(lambda target: target.mkdir())


def _always(_: object) -> bool:
    return True
