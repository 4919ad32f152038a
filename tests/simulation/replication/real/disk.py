"""A broker's log directory, real storage in it, on a disk that loses power.

A process that starts opens the directory as the product does, and recovers what the last one left.
A process that dies leaves what it has written; a machine that dies leaves any state that the disk
may be in by what was synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

from tests.simulation import power_loss
from tests.simulation.replication.cluster.disk import Disk
from tests.simulation.replication.real.log import RealLog
from tests.storage.log_model.host import RELEASES
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import files
from tidelog.storage.directory import registration_file
from tidelog.storage.directory.registration_file import RegistrationFileError
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from tests.simulation.replication.cluster.log import Log
    from tests.simulation.replication.cluster.settings import Settings
    from tests.storage.replicas.replica import Router
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.directory.registration_file import DirectoryState
    from tidelog.storage.time.corrections import ForwardStep

FAR_MS = 1 << 40  # no record is as far ahead of its append, and no producer is as old
_ALONE = TopicConfig()


class Power(power_loss.Disk):
    """A disk that loses power, and may be full or fail until then.

    A full disk may refuse to overwrite what is there, as one that copies on write does, but it does
    so as a whole: only what makes a file longer is written in part.
    """

    room: int | None = None  # bytes that may still be written; None: plenty
    fails = False  # its syncs do

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
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(number)

    def lose_bytes(self, target: Path, pick: random.Random) -> None:
        """Makes in `target` what is found after syncs have failed: any bytes, under their names."""
        styles = pick.choice([["old"], ["new"], ["old", "new"], ["first"]])
        self._restore(self._top, target, pick, styles, lambda call: True)


class RealDisk(Disk):
    """One log directory after another: a machine that died has another state of it."""

    refuses = True

    def __init__(
        self,
        pick: random.Random,
        changed: Callable[[str], None],
        now_ms: Callable[[], int],
        path: Path,
        router: Router,
    ) -> None:
        self._power: Power | None = None
        super().__init__(pick, changed)
        self.now_ms = now_ms  # what the machine's clock shows
        self._router = router
        self._path = path
        self._count = self._steps = 0  # of directories, of trusted steps of the clock
        self._configs: dict[str, TopicConfig] = {}
        self._own: dict[str, Any] = {
            "segment_bytes": pick.choice([400, 1_000, 4_000, 1 << 20]),
            "segment_ms": pick.choice([5_000, FAR_MS]),
            "segment_min_roll_interval_ms": pick.choice([0, 100]),
            "index_interval_bytes": pick.choice([0, 150, 4_096]),
            "file_delete_delay_ms": pick.choice([0, 3_000]),
        }
        self._store: LogStore | None = None
        self._has_failed = False
        self._is_closed = True
        self._registration: DirectoryState | None = None
        self._begin_directory()

    @property
    def path(self) -> Path:
        """The directory that the disk has now."""
        return self._path / str(self._count)

    def _begin_directory(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._power = Power(self.path)
        self._router.disks[self._path] = self._power
        self.is_full = self.is_full
        try:
            self._registration = registration_file.read_state(self.path)
        except RegistrationFileError:
            self._registration = None

    def _replace_directory(self, make: Callable[[Path], object]) -> None:
        before = self.path
        self._count += 1
        make(self.path)
        shutil.rmtree(before)
        self._begin_directory()

    # --- what lies in it --------------------------------------------------------------------------

    @property
    def registration(self) -> DirectoryState | None:
        """What the last registration left in its file; None if there is none, or it is torn."""
        return self._registration

    @registration.setter
    def registration(self, state: DirectoryState | None) -> None:
        if state is not None:
            self._is_closed &= state.is_stopped
            registration_file.write_state(self.path, state)
        self._registration = state

    def configure(self, topic_id: str, settings: Settings) -> None:
        """Takes the settings of a topic; segments and indexes are this broker's own."""
        config = TopicConfig(
            **self._own,
            message_format_version=RELEASES[settings.format],
            message_timestamp_type="LogAppendTime" if settings.is_stamped else "CreateTime",
            retention_ms=settings.retention_ms,
            retention_time_basis="append",
            retention_max_eventtime_ms=settings.retention_event_ms,
            retention_max_eventtime_grace_ms=0,
            event_time_ahead_max_ms=FAR_MS,
            cleanup_policy="compact" if settings.is_compacted else "delete",
            **({"flush_messages": 1} if settings.needs_flush else {}),
        )
        if self._configs.get(topic_id) != config:
            self._configs[topic_id] = config
            if self._store is not None:
                self._store.set_config(topic_id, config)

    def open_log(self, key: str, topic_id: UUID) -> Log:
        log = self.logs.get(key)
        if log is None:
            assert self._store is not None
            topic, _, index = key.partition("/")
            partition = self._store.partition(topic, int(index))  # if the start could not open it
            if partition is None:
                partition = self._store.create_partition(
                    topic, topic_id, int(index), self._configs[topic], self.now_ms()
                )
            log = self._add(key, RealLog(self, partition))
        return log

    def _add(self, key: str, log: RealLog) -> RealLog:
        self.logs[key] = log
        log.changed = lambda: self.changed(key)
        log.changed()
        return log

    def remove_log(self, key: str) -> None:
        super().remove_log(key)
        topic, _, index = key.partition("/")
        assert self._store is not None
        self._store.delete_partition(topic, int(index))

    def note_step(self, step: ForwardStep) -> None:
        """Lets the logs correct the append times that a clock gave while it was behind."""
        self._steps += 1
        for log in self.logs.values():
            log.note_step(step, self._path.name, self._steps)

    def checkpoint(self, log: Log) -> None:
        """Makes all logs durable, and writes down their high watermarks."""
        assert self._store is not None
        with contextlib.suppress(KafkaStorageError):  # full; it comes again
            self._store.checkpoint()
        for each in self.logs.values():
            each.look_durable()

    # --- when it fails ----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether it has no room, or soon has none."""
        return self._is_full

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        self._is_full = is_full
        if self._power is not None:
            self._power.room = self.pick.choice([0, 40, 400]) if is_full else None

    def stop_after(self, calls: int | None) -> None:
        """Stops everything in the middle of a call that storage will make; None: does not."""
        self._power.fails_at = None if calls is None else self._power.calls + calls
        self._power.failing_call_counts = self.pick.random() < 0.5

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Lets the checker read: nothing stops meanwhile."""
        power = self._power
        fails_at, power.fails_at, calls = power.fails_at, None, power.calls
        yield
        power.fails_at = None if fails_at is None else fails_at + power.calls - calls

    def repair(self) -> None:
        super().repair()
        self.stop_after(None)

    def fail(self) -> None:
        self.repair()
        self._power.fails = True
        for is_failing in (True, False):
            self._power.fails = is_failing  # at last the log can write down that it failed
            for partition in () if self._store is None else self._store.opened():
                with contextlib.suppress(KafkaStorageError):
                    partition.flush()
        self._has_failed = True
        if self._registration is not None:
            super().fail()

    # --- processes and machines -------------------------------------------------------------------

    def start(self, boot: int) -> None:
        """Opens the directory, as a process that starts does."""
        self._has_failed = False
        self._store = LogStore(
            [self.path],
            default_config=_ALONE,
            producer_id_expiration_ms=FAR_MS,
            boot_id=f"boot-{boot}",
        )
        self._store.open(self.now_ms(), self._configs)
        self.logs.clear()
        for topic, index in sorted(self._store.names()):
            with contextlib.suppress(KafkaStorageError):  # full; it is opened when it gets a role
                partition = self._store.partition(topic, index)
                assert partition is not None
                self._add(f"{topic}/{index}", RealLog(self, partition))

    def close(self) -> bool:
        assert self._store is not None
        store, self._store = self._store, None
        try:
            store.close()
        except KafkaStorageError:
            return False
        self._is_closed = True
        return True

    @property
    def is_flushed(self) -> bool:
        """Whether all was made durable before the process stopped, maybe while it wrote that down.

        A process that starts writes nothing to a log before it has written its registration.
        """
        return self._is_closed

    def kill(self) -> None:
        self._power.is_off, self._power.fails_at = False, None
        if self._store is not None:
            self._store._release()
            self._store = None
        for log in self.logs.values():
            log.changed()

    def lose_power(self) -> list[str]:
        said: list[str] = []
        if self._has_failed:
            self._replace_directory(lambda target: self._power.lose_bytes(target, self.pick))
            return ["bytes"]
        self._replace_directory(
            lambda target: said.append(self._power.lose_power(target, self.pick))
        )
        return said

    def wipe(self) -> None:
        super().wipe()
        self._replace_directory(lambda target: target.mkdir())


def use(router: files.System) -> files.System:
    """Lets storage use disks that lose power; returns what it used before."""
    return files.use(router)
