"""The fetchers of this broker: one for each leader that a partition here follows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.partitions.following.fetcher import Fetcher

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.broker.partitions.following.fetch_request import FetcherContext
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower


class Fetchers:
    """Starts a fetcher with the first partition that follows a leader, and ends it with the last one."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self.by_leader: dict[int, Fetcher] = {}
        self._fetches: dict[PartitionFollower, Fetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def followers(self) -> Collection[PartitionFollower]:
        """The partitions that are fetched."""
        return self._fetches.keys()

    def add(self, followed: PartitionFollower) -> None:
        """Begins to fetch a partition that follows from now on."""
        leader = followed.follower.leader
        fetcher = self.by_leader.get(leader)
        if fetcher is None:
            fetcher = self.by_leader[leader] = Fetcher(self._context, leader)
        self._fetches[followed] = fetcher
        fetcher.add(followed)

    def discard(self, followed: PartitionFollower) -> None:
        """Ends the fetches of a partition that has stopped following."""
        fetcher = self._fetches.pop(followed, None)
        if fetcher is None:
            return
        fetcher.discard(followed)
        if not fetcher and self.by_leader.get(fetcher.leader) is fetcher:
            del self.by_leader[fetcher.leader]
            task = asyncio.get_running_loop().create_task(fetcher.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Returns when the fetchers that were ended have closed their connections."""
        if self._closing:
            await asyncio.wait(self._closing)
