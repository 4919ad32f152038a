"""Pending fetches of followers that a leader's replication quota holds back (KIP-73).

A follower that is in sync is never held back. One that is not gets no records while the quota is
exceeded; its fetch stays pending, and is checked again when the quota is exceeded no more. An
answer that is due before, by the time or by a change, comes without records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.broker.partitions.fetch.followers.pending_fetch import PendingFetch
    from tidelog.broker.partitions.replication.quota import ReplicationQuotas
    from tidelog.protocol.topic_partition import TopicIdPartition

_NONE: frozenset[TopicIdPartition] = frozenset()


class Throttled:
    """What the quota holds back of one follower's session."""

    __slots__ = ("_alarm", "_held", "_now_ms", "_quotas")

    def __init__(self, quotas: ReplicationQuotas, now_ms: Callable[[], int]) -> None:
        self._quotas, self._now_ms = quotas, now_ms
        self._held: dict[TopicIdPartition, PendingFetch] = {}
        self._alarm = Alarm(self._look)

    def holds(self, pending: PendingFetch) -> bool:
        """Returns whether the quota holds back what a pending fetch would bring; then it stays pending."""
        quota = self._quotas.leader
        if quota is None or not self._is_subject(pending):
            return False
        wait_ms = quota.wait_ms(self._now_ms())
        if not wait_ms:
            return False
        pending.hold()
        self._held[pending.name] = pending
        self._alarm.set_sooner(asyncio.get_running_loop().time() + wait_ms / 1000)
        return True

    def keeps(self, pending: PendingFetch) -> bool:
        """Returns whether a pending fetch is held back: more records are no update for it."""
        if not self._held or self._held.get(pending.name) is not pending:
            return False
        return pending.led is not None and pending.led.leader.is_leading

    def without_records(self, fetches: Iterable[PendingFetch]) -> frozenset[TopicIdPartition]:
        """Returns the pending fetches among those to answer now whose answers may bring no records."""
        quota = self._quotas.leader
        if quota is None or not quota.is_exceeded(self._now_ms()):
            return _NONE
        return frozenset(pending.name for pending in fetches if self._is_subject(pending))

    def sent(self, pending: PendingFetch, size: int) -> int:
        """Returns how many of the bytes that answer a pending fetch count against the quota."""
        quota, led = self._quotas.leader, pending.led
        if quota is None or led is None:
            return 0
        return size if quota.is_throttled(led.partition.topic, led.partition.index) else 0

    def record(self, size: int) -> None:
        """Counts bytes that were sent."""
        quota = self._quotas.leader
        if quota is not None:
            quota.record(size, self._now_ms())

    def discard(self, name: TopicIdPartition) -> None:
        """Drops a fetch that is answered."""
        if self._held:
            self._held.pop(name, None)

    def close(self) -> None:
        """Stops holding anything back."""
        self._held.clear()
        self._alarm.close()

    def _is_subject(self, pending: PendingFetch) -> bool:
        """Returns whether a pending fetch brings records of a throttled replica that is not in sync."""
        quota, led = self._quotas.leader, pending.led
        return (
            quota is not None
            and led is not None
            and quota.is_throttled(led.partition.topic, led.partition.index)
            and pending.is_out_of_sync()
            and pending.has_records()
        )

    def _look(self) -> None:
        """Asks for what was held back to be answered, if the quota is exceeded no more."""
        quota = self._quotas.leader
        wait_ms = 0 if quota is None else quota.wait_ms(self._now_ms())
        if wait_ms:
            self._alarm.set(asyncio.get_running_loop().time() + wait_ms / 1000)
            return
        held, self._held = self._held, {}
        for pending in held.values():
            pending.wake()
