"""Logs that this broker should not lead: those that have failed, or whose disk is full or slow.

A log that has failed stays so until the process ends. A disk is full from an append that found no
room until there is some again, and for a while at least: else leaders would move away and back.
`slow_disks.py` says which disks are slow.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.logs.slow_disks import SlowDisks
from tidelog.broker.metadata.brokers.records import OfflineRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from uuid import UUID

    from tidelog.broker.logs.services import Services
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.cluster")

_ROOM_BYTES = 16 << 20
_LEAST_FULL_MS = 10_000


class Directories(Protocol):
    """The log directories of this broker, as it has registered them."""

    @property
    def by_path(self) -> Mapping[Path, str]:
        """The ids of the directories."""

    def note_failure(self, path: Path) -> None:
        """Writes down that a log in a directory has failed. Raises OSError."""


class Disks:
    """The logs of this broker that should not lead; all methods run on the event loop."""

    def __init__(
        self, services: Services, directories: Directories, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` is a monotonic clock, for any thread."""
        self._services, self._directories = services, directories
        self._slow = SlowDisks(
            services.pools.syncs,
            directories.by_path,
            services.config.cluster.log_dir_slow_ms,
            now_ms,
        )
        self._failed: dict[Path, list[Partition]] = {}
        self._full: dict[Path, int] = {}  # by directory: since when
        self.offline = OfflineRecord()
        """What the broker should not lead, as `check` has found."""

    @property
    def unwritable(self) -> Mapping[Path, str]:
        """Why nothing can be written to log directories, those without appends included."""
        return self._slow.unwritable

    async def check(self, now_ms: int) -> bool:
        """Checks the logs; returns whether something has changed. `now_ms` is monotonic."""
        opened = self._services.store.opened()
        failed = _by_directory(each for each in opened if each.offline is not None)
        for path in failed.keys() - self._failed.keys():
            await self._note_failure(path)
        self._failed = failed
        for path in _by_directory(each for each in opened if each.is_full):
            if path not in self._full:
                log.error("log directory full", extra={"directory": str(path)})
                self._full[path] = now_ms
        for path, since_ms in list(self._full.items()):
            if now_ms - since_ms >= _LEAST_FULL_MS:
                await self._check_room(path, opened)
        self._slow.check()
        before, self.offline = self.offline, self._record(opened)
        return self.offline != before

    async def _note_failure(self, path: Path) -> None:
        log.error("log directory failed", extra={"directory": str(path)})
        try:
            await self._services.pools.topics.run(self._directories.note_failure, path)
        except OSError as error:  # the metadata have it, too
            log.error(
                "log directory failure not recorded",
                extra={"directory": str(path), "reason": error},
            )

    async def _check_room(self, path: Path, opened: Iterable[Partition]) -> None:
        free_bytes = await self._services.pools.topics.run(_free_bytes, path)
        if free_bytes < _ROOM_BYTES:
            return
        log.info(
            "log directory has room again", extra={"directory": str(path), "bytes": free_bytes}
        )
        self._full.pop(path, None)
        for partition in opened:
            if partition.directory.parent == path:
                partition.note_room()

    def _record(self, opened: Iterable[Partition]) -> OfflineRecord:
        if not self._failed and not self._full and not self._slow.slow:
            return OfflineRecord()
        ids = self._directories.by_path
        return OfflineRecord(
            tuple(ids[path] for path in self._failed),
            self._by_topic(each for found in self._failed.values() for each in found),
            self._by_topic(each for each in opened if each.directory.parent in self._full),
            self._by_topic(each for each in opened if each.directory.parent in self._slow.slow),
        )

    def _by_topic(self, partitions: Iterable[Partition]) -> Mapping[UUID, tuple[int, ...]]:
        """Returns the numbers of partitions by the id of their topic."""
        topics = self._services.metadata.image.topics
        found: dict[UUID, list[int]] = defaultdict(list)
        for each in partitions:
            if each.topic in topics:
                found[topics[each.topic].topic_id].append(each.index)
        return {topic_id: tuple(sorted(indexes)) for topic_id, indexes in found.items()}


def _by_directory(partitions: Iterable[Partition]) -> dict[Path, list[Partition]]:
    found: dict[Path, list[Partition]] = defaultdict(list)
    for partition in partitions:
        found[partition.directory.parent].append(partition)
    return dict(found)


def _free_bytes(path: Path) -> int:
    """Returns how much may be written to a volume; 0 if that is not known."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return 0
    return volume.f_frsize * volume.f_bavail
