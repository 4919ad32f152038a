"""The groups that a coordinator holds: finding, listing and deleting them.

Until a group's partition of __consumer_offsets has been read, requests for it raise
COORDINATOR_LOAD_IN_PROGRESS; if another broker leads that partition, NOT_COORDINATOR. A deleted
group, expired offsets and the offsets of a deleted topic are dropped from memory once their
tombstones are in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.clock import ManualClock, SystemClock
from tidelog.broker.coordination.coordinating import Coordinating
from tidelog.broker.folded_log import GROUPS, FoldedLog
from tidelog.broker.groups.group import Group
from tidelog.broker.groups.group_metadata import GroupMetadata, Loading
from tidelog.broker.groups.held import HeldBytes, of_group, pieces
from tidelog.broker.groups.messages import State
from tidelog.broker.groups.offset_expiry import correct_times, expired_offsets
from tidelog.broker.groups.offsets_topic import GroupReader, declared
from tidelog.broker.network.scheduler import checkpoint
from tidelog.protocol.errors import BrokerError, PolicyViolation
from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidGroupId,
    NonEmptyGroup,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.clock import Clock
    from tidelog.broker.groups.pending_offsets import PendingBatch
    from tidelog.broker.groups.services import Services
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.time.trusted_clock import Change

log = logging.getLogger("tidelog.groups")

_LONGEST_ID: Final = 1_024
"""Characters of a group id; Kafka takes up to 32,767 bytes, and holds each in memory for a week."""

_PIECES_AT_ONCE: Final = 20
_PAUSE_S: Final = 1.0
_WARNING_INTERVAL_S: Final = 60.0
_PAUSES: Final = 20  # a round takes at most one in so many seconds
_AT_ONCE: Final = 250  # offsets that are looked at, or deleted in one write
_SEEN_AT_ONCE: Final = (
    2_000  # offsets of many groups that are looked at before others have their turn
)


class GroupRegistry(Coordinating[Loading]):
    """The groups of one broker."""

    def __init__(self, services: Services) -> None:
        """Begins with no groups."""
        # A clock of its own beside a manual one is not watched.
        self._is_apart = (
            isinstance(services.clock, ManualClock) and services.config.clock_scope != "all"
        )
        clock: Clock = SystemClock() if self._is_apart else services.clock
        super().__init__(services, declared(services.config.groups), clock)
        self._deletion_ms = (
            self._clock.now_ms if self._is_apart else services.clock_watch.deletion_ms
        )
        self._groups: dict[str, GroupMetadata] = {}
        self._being_stored: set[PendingBatch] = set()  # offsets that no group has yet
        self._folded = FoldedLog(log, GROUPS)
        self.held = HeldBytes()
        self._crowded = asyncio.Event()
        self._expiring = asyncio.Lock()
        self._has_refused = False  # for want of room, since what has expired was let go of last
        self._reader = GroupReader(services, self._clock, is_apart=self._is_apart)

    def _new_group(self, group_id: str) -> Group:
        config = self._services.config.groups
        return Group(group_id, config.group_initial_rebalance_delay_ms, config.group_max_size)

    def _created(self, group_id: str) -> GroupMetadata:
        """Returns a new group of this coordinator, which is not among its groups yet.

        Raises InvalidGroupId for an id that is too long, PolicyViolation if there are max.groups, or if
        they take max.groups.bytes.
        """
        if len(group_id) > _LONGEST_ID:
            raise InvalidGroupId(f"a group id has up to {_LONGEST_ID} characters")
        most = self._services.config.groups.max_groups
        if len(self._groups) >= most:
            self._refuses()
            raise PolicyViolation(f"this broker has max.groups={most}")
        self._grow(of_group(group_id))
        epoch = self.topic.epoch_of(group_id)
        return GroupMetadata(self._new_group(group_id), since_ms=self._clock.now_ms(), epoch=epoch)

    def _grow(self, by: int, *, is_known: bool = False) -> None:
        """Counts bytes by which a group is about to grow. Raises PolicyViolation if there is no room."""
        config = self._services.config
        limit = config.groups.max_groups_bytes
        if limit == -1:
            limit = config.limits.memory_limit_bytes
        try:
            self.held.grow(by, limit, is_known=is_known)
        except PolicyViolation:
            self._refuses()
            raise
        if self.held.should_be_counted(limit):
            self._crowded.set()

    def _refuses(self) -> None:
        self._has_refused = True
        self._crowded.set()

    async def count_bytes(self) -> None:
        """Counts what all groups take, while others have their turn."""
        self.held.begin()
        counted = seen = 0
        for kept in list(self._groups.values()):
            for size in pieces(kept):
                counted += size
                seen += 1
                if seen % _PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self.held.end(counted)

    async def _make_room(self) -> None:
        """Counts the groups whenever there is little room; lets go of what has expired if there is none."""
        loop, warned_s = asyncio.get_running_loop(), -_WARNING_INTERVAL_S
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            began_s = loop.time()
            try:
                if self._has_refused:
                    if began_s >= warned_s + _WARNING_INTERVAL_S:
                        warned_s = began_s
                        held = {"groups": len(self._groups), "bytes": self.held.counted}
                        log.warning("new groups, members or offsets refused", extra=held)
                    self._has_refused = False
                    await self.expire()
                await self.count_bytes()
            except Exception:  # the next round may succeed; the loop must not end
                log.exception("groups could not be counted")
            await asyncio.sleep(max(_PAUSE_S, _PAUSES * (loop.time() - began_s)))

    def _is_kept(self, kept: GroupMetadata) -> bool:
        """Returns whether a group is still the one of its name here."""
        return self._groups.get(kept.group.group_id) is kept

    def kept_in(self, group_id: str) -> TopicPartition:
        """Returns the partition that keeps a group."""
        return self.topic.name, self.topic.index_of(group_id)

    def find(self, group_id: str, *, may_be_empty: bool = False) -> GroupMetadata | None:
        """Returns the group, None if there is none.

        Raises InvalidGroupId, NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable.
        """
        if group_id == "" and not may_be_empty:
            raise InvalidGroupId("the group id is empty")
        if not self.ownership.serves_all:
            self.topic.epoch_of(group_id)
        return self._groups.get(group_id)

    def all(self) -> list[GroupMetadata]:
        """Returns every group of this coordinator.

        Raises CoordinatorLoadInProgress until all have been read.
        """
        if self.ownership.is_loading:
            raise CoordinatorLoadInProgress("the groups are being read")
        return list(self._groups.values())

    # -- letting go -----------------------------------------------------------------------------

    async def forget(self, group_id: str) -> None:
        """Deletes a group; raises GroupIdNotFound, NonEmptyGroup."""
        kept = self.find(group_id, may_be_empty=True)
        if kept is None or kept.group.state is State.DEAD:
            raise GroupIdNotFound(f"there is no group {group_id}")
        if kept.group.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has members")
        kept.group.state = State.DEAD
        try:
            await self.topic.append_all(group_id, kept.tombstones(), kept.epoch)
        except BrokerError:
            kept.group.state = State.EMPTY
            raise
        if self._is_kept(kept):
            del self._groups[group_id]
        self._folded.add(logging.INFO, "groups deleted", group_id, {"offsets": len(kept.offsets)})

    def _drop_unused(self, kept: GroupMetadata) -> None:
        """Forgets a group that has no member and no offset, and never had: none of it is in the log.

        A commit that is being written to the log makes it again.
        """
        if kept.is_idle and not kept.group.generation and self._is_kept(kept):
            kept.group.state = State.DEAD
            del self._groups[kept.group.group_id]

    async def forget_offsets(self, group_id: str, names: Sequence[TopicPartition]) -> None:
        """Deletes offsets of a group, and the group too if it is empty and has no more offsets."""
        kept = self.find(group_id, may_be_empty=True)
        if kept is None:
            return
        has_gone = False
        for at in range(0, len(names), _AT_ONCE):
            has_gone |= await self._forget_some(kept, names[at : at + _AT_ONCE])
            checkpoint()
        if has_gone and kept.is_idle and self._is_kept(kept):
            await self.forget(group_id)

    async def _forget_some(self, kept: GroupMetadata, names: Sequence[TopicPartition]) -> bool:
        """Deletes some of the offsets of a group; returns whether it had any of them."""
        pending = kept.pending_offsets
        in_transactions = pending.names() if pending else ()
        going = [name for name in names if name in kept.offsets or name in in_transactions]
        if not going:
            return False
        before, batches = {name: kept.offsets.get(name) for name in going}, pending.of(going)
        tombstones = [kept.offset_record(name, None) for name in going]
        await self.topic.append(kept.group.group_id, tombstones, kept.epoch)
        for name in going:
            if kept.offsets.get(name) == before[name]:  # not committed again meanwhile
                kept.offsets.pop(name, None)
        for batch in batches:
            batch.drop(going)
        return True

    async def forget_topic(self, topic: str) -> None:
        """Deletes all offsets of a deleted topic."""
        seen = 0
        for kept in list(self._groups.values()):
            known = {*kept.offsets, *kept.pending_offsets.names()}
            names = [name for name in known if name[0] == topic]
            seen += 1 + len(known)
            if seen > _SEEN_AT_ONCE:
                seen = 0
                await asyncio.sleep(0)
            for at in range(0, len(names), _AT_ONCE):
                if topic in self._services.metadata.image.topics:
                    return  # what is committed now is of another topic of that name
                if not self._is_kept(kept):
                    break
                with contextlib.suppress(BrokerError):
                    await self.forget_offsets(kept.group.group_id, names[at : at + _AT_ONCE])
                await asyncio.sleep(0)

    async def expire(self) -> int:
        """Deletes expired offsets, and empty groups that have none left; returns how many offsets."""
        async with self._expiring:
            return await self._expire_all()

    async def _expire_all(self) -> int:
        gone = seen = 0
        for group_id, kept in list(self._groups.items()):
            seen += 1 + len(kept.offsets)
            if seen > _SEEN_AT_ONCE:
                seen = 0
                await asyncio.sleep(0)
            try:
                gone += await self._let_go(group_id, kept)
            except BrokerError as error:
                # Its log cannot be written now; the other groups go on.
                what = "offsets could not expire"
                self._folded.add(logging.WARNING, what, group_id, reason=error.named)
        return gone

    async def correct_times(self, changes: Iterable[Change]) -> None:
        """Corrects the times of the groups that are known, after the clock has changed."""
        if self._is_apart:
            return
        for change in changes:
            for batch in self._being_stored:
                batch.correct(change)
            for kept in list(self._groups.values()):
                for _ in correct_times(kept, change):
                    await asyncio.sleep(0)
                await asyncio.sleep(0)

    async def _let_go(self, group_id: str, kept: GroupMetadata) -> int:
        gone, retention_ms = 0, self._services.config.groups.offsets_retention_minutes * 60_000
        known = list(kept.offsets)
        for at in range(0, len(known), _AT_ONCE):
            if not self._is_kept(kept):
                break
            some = known[at : at + _AT_ONCE]
            names = expired_offsets(kept, some, self._deletion_ms(), retention_ms)
            await self.forget_offsets(group_id, names)
            gone += len(names)
            if names or len(known) > _AT_ONCE:
                await asyncio.sleep(0)
        if gone:
            self._folded.add(logging.INFO, "offsets expired", group_id, {"offsets": gone})
        if kept.is_idle and self._is_kept(kept):
            await self.forget(group_id)
            await asyncio.sleep(0)
        return gone
