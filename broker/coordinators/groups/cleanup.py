"""Deletes offsets that have expired, and those of deleted topics, with the groups that have none left.

When the clock is corrected, the times of offsets by that clock are corrected too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.coordinators.groups.offset_expiry import correct_times, expired_offsets
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.broker.coordinators.groups.groups import Groups
    from tidelog.broker.coordinators.groups.offset_commits import OffsetCommits
    from tidelog.broker.coordinators.services import Services
    from tidelog.broker.metadata.image import Image
    from tidelog.storage.time.trusted_clock import Change

log = logging.getLogger("tidelog.groups")

_AT_ONCE: Final = 250  # offsets that are checked, or deleted in one write
_SEEN_AT_ONCE: Final = 2_000  # offsets of many groups that are checked before others are served


class Cleanup:
    """Deletes the offsets of one broker's groups that have expired or whose topic is gone."""

    def __init__(
        self,
        services: Services,
        groups: Groups,
        offsets: OffsetCommits,
        clock: Clock,
        deletion_ms: Callable[[], int],
    ) -> None:
        """`deletion_ms` returns the time by which offsets may be deleted."""
        self._services, self._clock, self._deletion_ms = services, clock, deletion_ms
        self._groups, self._offsets, self._runtime = groups, offsets, groups.runtime
        self._expiring = asyncio.Lock()
        self._topics: frozenset[str] = frozenset()  # of the last image
        self._deleted: asyncio.Queue[list[str]] = asyncio.Queue()  # topics of one image

    # -- expiry ---------------------------------------------------------------------------------

    async def expire_at_intervals(self) -> None:
        """Deletes expired offsets at intervals, until it is cancelled."""
        every_ms = self._services.config.groups.offsets_retention_check_interval_ms
        due_ms = self._clock.steady_ms() + every_ms
        while True:
            await self._clock.reached(due_ms)
            try:
                await self.expire()
                self._groups.recount()
            except Exception:  # the next round may succeed; the loop must not end
                log.exception("offsets not expired")
            due_ms = self._clock.steady_ms() + every_ms

    async def expire(self) -> int:
        """Deletes expired offsets, and empty groups that have none left; returns how many offsets."""
        gone = seen = 0
        async with self._expiring:
            for group_id, entry in list(self._runtime.entries.items()):
                seen += 1 + len(entry.offsets)
                if seen > _SEEN_AT_ONCE:
                    seen = 0
                    await asyncio.sleep(0)
                try:
                    gone += await self._expire_group(group_id, entry)
                except BrokerError as error:
                    # Its log cannot be written now; the other groups go on.
                    what = "offsets not expired"
                    self._groups.folded.add(logging.WARNING, what, group_id, reason=error.named)
        return gone

    async def _expire_group(self, group_id: str, entry: GroupMetadata) -> int:
        gone, retention_ms = 0, self._services.config.groups.offsets_retention_minutes * 60_000
        known = list(entry.offsets)
        for at in range(0, len(known), _AT_ONCE):
            if not self._runtime.has(entry):
                break
            some = known[at : at + _AT_ONCE]
            names = expired_offsets(entry, some, self._deletion_ms(), retention_ms)
            await self._offsets.delete(group_id, names)
            gone += len(names)
            if names or len(known) > _AT_ONCE:
                await asyncio.sleep(0)
        if gone:
            self._groups.folded.add(logging.INFO, "offsets expired", group_id, {"offsets": gone})
        if entry.is_idle and self._runtime.has(entry):
            await self._groups.delete(group_id)
            await asyncio.sleep(0)
        return gone

    # -- deleted topics -------------------------------------------------------------------------

    def image_changed(self, image: Image) -> None:
        """Queues the topics that are gone since the image before for `delete_topics`.

        A name that has a topic again keeps its offsets: they may have been committed for that.
        """
        gone, self._topics = self._topics - image.topics.keys(), frozenset(image.topics)
        if gone:
            self._deleted.put_nowait(sorted(gone))

    async def delete_topics(self) -> None:
        """Deletes the offsets of deleted topics, until it is cancelled.

        Topics of a later image do not wait for those of an earlier one, whose log may be slow: created
        again meanwhile, a topic would keep its old offsets.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._delete_topics(await self._deleted.get()))

    async def _delete_topics(self, topics: list[str]) -> None:
        for topic in topics:
            try:
                await self.delete_topic(topic)
            except Exception:  # the other topics go on
                log.exception("offsets of deleted topic not deleted", extra={"topic": topic})

    async def delete_topic(self, topic: str) -> None:
        """Deletes all offsets of a deleted topic."""
        seen = 0
        for entry in list(self._runtime.entries.values()):
            known = {*entry.offsets, *entry.pending_offsets.names()}
            names = [name for name in known if name[0] == topic]
            seen += 1 + len(known)
            if seen > _SEEN_AT_ONCE:
                seen = 0
                await asyncio.sleep(0)
            for at in range(0, len(names), _AT_ONCE):
                if topic in self._services.metadata.image.topics:
                    return  # what is committed now is of another topic of that name
                if not self._runtime.has(entry):
                    break
                with contextlib.suppress(BrokerError):
                    await self._offsets.delete(entry.key, names[at : at + _AT_ONCE])
                await asyncio.sleep(0)

    # -- the clock ------------------------------------------------------------------------------

    async def correct_times(self, changes: Iterable[Change]) -> None:
        """Corrects the times of offsets and groups after changes of the clock."""
        for change in changes:
            self._offsets.correct_times(change)
            for entry in list(self._runtime.entries.values()):
                for _ in correct_times(entry, change):
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
