"""The partitions that this broker leads, and which of their leaders are suspended.

A leader that is cut off from the metadata, and that no in-sync replica follows, answers no client
(`broker/partitions/replication/leader.py`). One line in the log has all that were suspended between two
checks of all leaders. Coordinators, which load and drop partitions with their leaders, wait for `changed`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.protocol.topic_partition import TopicIdPartition
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.replicas")


class _Leader(Protocol):
    """A leader of a partition."""

    @property
    def name(self) -> TopicIdPartition: ...

    @property
    def partition(self) -> Partition: ...


LeaderT = TypeVar("LeaderT", bound=_Leader)


class Leaders(Generic[LeaderT]):
    """The leaders of this broker, by log and by name."""

    def __init__(self, by_log: dict[Partition, LeaderT]) -> None:
        self.by_log = by_log
        self.by_name: dict[TopicIdPartition, LeaderT] = {}
        self._suspended: dict[LeaderT, None] = {}
        self._newly_suspended = self._newly_resumed = 0  # since they were logged
        self._changes = 0
        self._changed = asyncio.Event()  # replaced by who waits next

    # --- what leaders do --------------------------------------------------------------------------

    def started(self, leader: LeaderT) -> None:
        """Adds a leader."""
        self.by_log[leader.partition] = self.by_name[leader.name] = leader
        self._count_change()

    def stopped(self, leader: LeaderT) -> None:
        """Removes a leader."""
        if self.by_log.get(leader.partition) is leader:
            del self.by_log[leader.partition], self.by_name[leader.name]
            self._suspended.pop(leader, None)
            self._count_change()

    def suspended(self, leader: LeaderT) -> None:
        """Notes that a leader answers no client for now: what it coordinates is dropped."""
        self._suspended[leader] = None
        self._newly_suspended += 1
        self._count_change()

    def resumed(self, leader: LeaderT) -> None:
        """Notes that a leader answers clients again: what it coordinates is read again."""
        self._suspended.pop(leader, None)
        self._newly_resumed += 1
        self._count_change()

    def _count_change(self) -> None:
        self._changes += 1
        self._changed.set()

    # --- what others ask --------------------------------------------------------------------------

    async def changed(self, since: int = 0) -> int:
        """Returns how often a leader has started, stopped, or was suspended or resumed: not `since` often."""
        while self._changes == since:
            if self._changed.is_set():
                self._changed = asyncio.Event()
            await self._changed.wait()
        return self._changes

    @property
    def suspended_logs(self) -> list[str]:
        """The partitions whose leaders answer no client, as topic-number."""
        return sorted(f"{each.partition.topic}-{each.partition.index}" for each in self._suspended)

    @property
    def are_all_suspended(self) -> bool:
        """Whether there are leaders, and each is suspended."""
        return bool(self.by_log) and len(self._suspended) == len(self.by_log)

    def log_suspensions(self) -> None:
        """Logs how many leaders were suspended, and how many resumed, since the last call."""
        begun, ended = self._newly_suspended, self._newly_resumed
        self._newly_suspended = self._newly_resumed = 0
        counts = {"suspended": len(self._suspended), "leaders": len(self.by_log)}
        if begun:
            log.warning(
                "partition leaders suspended: metadata out of reach, and no in-sync replica fetches",
                extra={"newly": begun, **counts},
            )
        if ended:
            log.info("partition leaders resumed", extra={"resumed": ended, **counts})
