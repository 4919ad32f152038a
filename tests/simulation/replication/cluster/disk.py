"""A broker's machine: its log directory, its boot id, and its wall clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.cluster.log import Log

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from uuid import UUID

    from tests.simulation.replication.cluster.settings import Settings
    from tidelog.storage.directory.registration_file import DirectoryState
    from tidelog.storage.time.corrections import ForwardStep

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000  # of true time
SYNC_MS = 5


class Disk:
    """A log directory: a log for each partition, and what the last registration left in a file."""

    refuses = False  # when it is full: then storage itself refuses, and nobody has to look

    def __init__(self, pick: random.Random, changed: Callable[[str], None]) -> None:
        self.pick = pick
        self.changed = changed  # hears of each change of a log
        self.logs: dict[str, Log] = {}
        self.registration: DirectoryState | None = None
        self.is_full = False
        self.number = 0  # of the directory: a new one has another id

    @property
    def directory(self) -> str:
        """The id of the directory."""
        return f"directory-{self.number}"

    @property
    def is_flushed(self) -> bool:
        """Whether the last process stopped in order, with everything flushed."""
        return self.registration is not None and self.registration.is_stopped

    def start(self, boot: int) -> None:
        """Does what a process does first with its log directory."""

    def configure(self, topic_id: str, settings: Settings) -> None:
        """Takes the settings of a topic."""

    def open_log(self, key: str, topic_id: UUID) -> Log:
        """Returns the log of a partition; a new one is empty."""
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = Log()
            log.changed = lambda: self.changed(key)
            log.changed()
        return log

    def note_step(self, step: ForwardStep) -> None:
        """Tells the logs of a trusted step of the clock."""

    def remove_log(self, key: str) -> None:
        """Deletes the log of a partition."""
        self.logs.pop(key, None)

    def checkpoint(self, log: Log) -> None:
        """Writes down the high watermark of a log."""
        log.checkpoint = log.high_watermark

    def close(self) -> bool:
        """Makes everything durable, at the end of a process; returns whether it is."""
        for log in self.logs.values():
            log.sync()
            log.checkpoint = log.high_watermark
        return not any(log.has_failed for log in self.logs.values())

    def sync_ms(self) -> int:
        """Returns how long a sync takes."""
        return self.pick.randint(1, SYNC_MS)

    def repair(self) -> None:
        """Lets it have room, and fail no more."""
        self.is_full = False

    def fail(self) -> None:
        """A sync fails, and the process notes that in the directory."""
        self.registration = self.registration._replace(has_failed=True)

    def kill(self) -> None:
        """The process has died; the page cache has not."""
        for log in self.logs.values():
            log.kill()
            if log.has_failed:
                log.has_failed = False
                log.lose_power(self.pick)

    def lose_power(self) -> list[str]:
        """The machine has died; returns the partitions that lost something."""
        return [key for key, log in self.logs.items() if log.lose_power(self.pick)]

    def wipe(self) -> None:
        """Another, empty disk is in its place."""
        self.logs.clear()
        self.registration = None
        self.number += 1


class Clock:
    """A machine's wall clock, which may be wrong by hours, and may stand still."""

    def __init__(self, pick: random.Random) -> None:
        self.error_ms = pick.choice([0, 0, 0, pick.randint(-2_000, 2_000), 5 * HOUR_MS, -HOUR_MS])
        self.frozen_ms: int | None = None

    def wall_ms(self, now_ms: int) -> int:
        """Returns what the clock shows."""
        if self.frozen_ms is not None:
            return self.frozen_ms
        return BEGIN_MS + now_ms + self.error_ms

    def jump(self, by_ms: int) -> None:
        """Steps forward or back."""
        self.error_ms += by_ms

    def freeze(self, now_ms: int) -> None:
        """Stands still until it is thawed."""
        self.frozen_ms = self.wall_ms(now_ms)

    def thaw(self) -> None:
        """Goes on as if it had not stood still."""
        self.frozen_ms = None
