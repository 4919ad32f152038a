"""The groups of a coordinator: making and deleting them, within max.groups and max.groups.bytes.

A deleted group is dropped from memory once its tombstones are in the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
from tidelog.broker.coordinators.groups.held import HeldBytes, of_group, pieces
from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.logging.folded_log import GROUPS, FoldedLog
from tidelog.protocol.errors import BrokerError, PolicyViolation
from tidelog.protocol.group_errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.groups.group_metadata import Loading
    from tidelog.broker.coordinators.runtime import Runtime
    from tidelog.broker.coordinators.services import Services

log = logging.getLogger("tidelog.groups")

_LONGEST_ID: Final = 1_024
"""Characters of a group id; Kafka takes up to 32,767 bytes, and holds each in memory for a week."""

_PIECES_AT_ONCE: Final = 20
_PAUSE_S: Final = 1.0
_WARNING_INTERVAL_S: Final = 60.0
_PAUSES: Final = 20  # the loop runs one in so many seconds at most


class Groups:
    """The groups of one broker, and their bytes in memory."""

    def __init__(
        self, services: Services, runtime: Runtime[GroupMetadata, Loading], clock: Clock
    ) -> None:
        """`runtime` holds the groups, `clock` is its own."""
        self._services, self._clock = services, clock
        self.runtime = runtime
        self.held = HeldBytes()
        self.folded = FoldedLog(log, GROUPS)
        self._crowded = asyncio.Event()
        self._has_refused = False  # for want of room, since what has expired was deleted last

    def machine(self, group_id: str) -> Group:
        """Returns a new state machine, with the settings of the broker."""
        config = self._services.config.groups
        return Group(group_id, config.group_initial_rebalance_delay_ms, config.group_max_size)

    def create(self, group_id: str) -> GroupMetadata:
        """Returns a new group of this coordinator, which is not among its groups yet.

        Raises InvalidGroupId for an id that is too long, PolicyViolation if there are max.groups, or if
        they have max.groups.bytes.
        """
        if len(group_id) > _LONGEST_ID:
            raise InvalidGroupId(f"a group id has up to {_LONGEST_ID} characters")
        most = self._services.config.groups.max_groups
        if len(self.runtime.entries) >= most:
            self._note_refusal()
            raise PolicyViolation(f"this broker has max.groups={most}")
        self.grow(of_group(group_id))
        epoch = self.runtime.topic.epoch_of(group_id)
        return GroupMetadata(self.machine(group_id), since_ms=self._clock.now_ms(), epoch=epoch)

    async def delete(self, group_id: str) -> None:
        """Deletes a group; raises GroupIdNotFound, NonEmptyGroup."""
        entry = self.runtime.get(group_id)
        if entry is None or entry.group.state is State.DEAD:
            raise GroupIdNotFound(f"there is no group {group_id}")
        if entry.group.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has members")
        entry.group.state = State.DEAD
        try:
            await self.runtime.topic.append_all(group_id, await entry.tombstones(), entry.epoch)
        except BrokerError:
            entry.group.state = State.EMPTY
            raise
        self.runtime.delete(entry)
        self.folded.add(logging.INFO, "groups deleted", group_id, {"offsets": len(entry.offsets)})

    def delete_unused(self, entry: GroupMetadata) -> None:
        """Deletes a group that has no member and no offset, and never had: none of it is in the log.

        A commit that is being written to the log makes it again.
        """
        if entry.is_idle and not entry.group.generation and self.runtime.has(entry):
            entry.group.state = State.DEAD
            self.runtime.delete(entry)

    # -- room -----------------------------------------------------------------------------------

    def grow(self, by: int, *, is_known: bool = False) -> None:
        """Counts bytes by which a group is about to grow. Raises PolicyViolation if there is no room."""
        config = self._services.config
        limit = config.groups.max_groups_bytes
        if limit == -1:
            limit = config.limits.memory_limit_bytes
        try:
            self.held.grow(by, limit, is_known=is_known)
        except PolicyViolation:
            self._note_refusal()
            raise
        if self.held.should_be_counted(limit):
            self.recount()

    def recount(self) -> None:
        """Counts the bytes of all groups soon, because some have come or gone."""
        self._crowded.set()

    def _note_refusal(self) -> None:
        self._has_refused = True
        self.recount()

    async def count_bytes(self) -> None:
        """Counts the bytes of all groups, in pieces, between which other requests are served."""
        self.held.begin()
        counted = seen = 0
        for entry in list(self.runtime.entries.values()):
            for size in pieces(entry):
                counted += size
                seen += 1
                if seen % _PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self.held.end(counted)

    async def make_room(self, expire: Callable[[], Awaitable[object]]) -> None:
        """Counts the groups when there is little room; calls `expire` first if there was none.

        Runs until it is cancelled.
        """
        loop, warned_s = asyncio.get_running_loop(), -_WARNING_INTERVAL_S
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            began_s = loop.time()
            try:
                if self._has_refused:
                    if began_s >= warned_s + _WARNING_INTERVAL_S:
                        warned_s = began_s
                        held = {"groups": len(self.runtime.entries), "bytes": self.held.counted}
                        log.warning("new groups, members or offsets refused", extra=held)
                    self._has_refused = False
                    await expire()
                await self.count_bytes()
            except Exception:  # the next round may succeed; the loop must not end
                log.exception("count of group memory failed")
            await asyncio.sleep(max(_PAUSE_S, _PAUSES * (loop.time() - began_s)))
