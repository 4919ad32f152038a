"""Members of groups: they commit offsets and ask for them, at whichever broker coordinates.

A member commits its next offset when the last one was acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.replication.brokers.machine import GROUPS
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.clients import BACKOFF_MS, Client
from tidelog.client import apis
from tidelog.protocol.api import offset_commit, offset_fetch

if TYPE_CHECKING:
    from tests.simulation.replication.life import Life


class Member(Client):
    """The only member of a group."""

    def __init__(self, world: Life, number: int) -> None:
        super().__init__(world, number, GROUPS, 0)
        self.pause_ms = world.timeline.random.choice([300, 1_500])
        self.committing: int | None = None
        self.acknowledged = -1
        self.losses = 0  # of the partition, as far as they are excused

    def begin_partition(self) -> None:
        self.committing, self.acknowledged = None, -1

    @property
    def is_waiting(self) -> bool:
        """Whether a commit has not been acknowledged."""
        return self.committing is not None

    async def main(self) -> None:
        pick = self.world.timeline.random
        while not self.is_stopped or self.committing is not None:
            leader = self.find_leader()
            if leader is None:
                await asyncio.sleep(BACKOFF_MS / 1000)
                continue
            if self.committing is None and pick.random() < 0.6:
                self.committing = self.acknowledged + 1
            if self.committing is None:
                is_served = await self._fetch(leader)
            else:
                is_served = await self._commit(leader)
            self.was_answered(is_served=is_served)
            pause_ms = self.pause_ms if is_served else BACKOFF_MS
            await asyncio.sleep(pick.randint(1, pause_ms) / 1000)

    @property
    def _group(self) -> str:
        return f"group-{self.id}"

    async def _commit(self, leader: int) -> bool:
        assert self.committing is not None
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.committing
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=self._group,
            member_id="",
            topics=[offset_commit.OffsetCommitRequestTopic(name=GROUPS, partitions=[partition])],
        )
        answer = await self.ask(leader, request, apis.OFFSET_COMMIT)
        if answer is None or answer.topics[0].partitions[0].error_code:
            return False
        self.acknowledged, self.committing = self.committing, None
        self.world.checker.committed += 1
        return True

    async def _fetch(self, leader: int) -> bool:
        known = self.acknowledged
        topic = offset_fetch.OffsetFetchRequestTopic(name=GROUPS, partition_indexes=[0])
        request = offset_fetch.OffsetFetchRequest(group_id=self._group, topics=[topic])
        answer = await self.ask(leader, request, apis.OFFSET_FETCH)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return False
        self._check(known, answer.topics[0].partitions[0].committed_offset)
        return True

    def _check(self, known: int, offset: int) -> None:
        """Invariant 12: what was acknowledged is never answered older."""
        ledger = self.world.checker.stored.ledgers[self.key]
        if ledger.losses > self.losses or ledger.is_excused:
            self.losses, self.acknowledged = ledger.losses, offset
        elif offset < known:
            answered = f"group {self.id} is answered {offset}, and {known} was acknowledged"
            self.world.fail(BrokenInvariantError(f"invariant 12: {answered}"))
