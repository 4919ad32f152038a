"""Which leaders of this broker are suspended, and one line in the log for all that changes together.

A leader that is cut off from the metadata, and that no in-sync replica follows, answers no client
(`broker/partitions/replication/leader.py`). What is counted here is logged after each look at all leaders.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader

log = logging.getLogger("tidelog.replicas")


class Suspensions:
    """The leaders that are suspended now."""

    def __init__(self) -> None:
        self._leaders: dict[PartitionLeader, None] = {}
        self._begun = self._ended = 0  # since they were logged

    def __len__(self) -> int:
        return len(self._leaders)

    def names(self) -> Iterator[str]:
        """Yields the partitions, as topic-number."""
        for led in list(self._leaders):
            yield f"{led.partition.topic}-{led.partition.index}"

    def begin(self, led: PartitionLeader) -> None:
        """Notes that a leader is suspended."""
        self._leaders[led] = None
        self._begun += 1

    def end(self, led: PartitionLeader) -> None:
        """Notes that a leader answers clients again."""
        self._leaders.pop(led, None)
        self._ended += 1

    def forget(self, led: PartitionLeader) -> None:
        """Forgets a leader that leads no more."""
        self._leaders.pop(led, None)

    def log(self, leaders: int) -> None:
        """Logs how many were suspended, and how many resumed, of so many leaders."""
        begun, ended = self._begun, self._ended
        self._begun = self._ended = 0
        counts = {"suspended": len(self._leaders), "leaders": leaders}
        if begun:
            log.warning(
                "partition leaders suspended: metadata out of reach, and no in-sync replica fetches",
                extra={"newly": begun, **counts},
            )
        if ended:
            log.info("partition leaders resumed", extra={"resumed": ended, **counts})
