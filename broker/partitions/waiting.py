"""Fetches that wait for data, and their notification after an append.

A fetch that found too little leaves a `Wait` with the partitions it asked for. An append notifies
the partition's waits of how many bytes came; a wait that has enough is woken. While nothing arrives
a waiting fetch costs one timer and no work, however many there are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.log.partition import Partition


class Wait:
    """One fetch waiting for `missing_bytes` more."""

    __slots__ = ("future", "missing_bytes")

    def __init__(self, missing_bytes: int, future: asyncio.Future[None]) -> None:
        self.missing_bytes = missing_bytes
        self.future = future


class Waiting:
    """All waits of this broker, by partition."""

    def __init__(self) -> None:
        self._waits: dict[Partition, set[Wait]] = {}

    def __len__(self) -> int:
        """Partitions somebody waits on."""
        return len(self._waits)

    def notify(self, partition: Partition, size_bytes: int) -> None:
        """Subtract `size_bytes` that have become readable in `partition`, and wake who has enough."""
        waits = self._waits.get(partition)
        if not waits:
            return
        for wait in waits:
            wait.missing_bytes -= size_bytes
            if wait.missing_bytes <= 0 and not wait.future.done():
                wait.future.set_result(None)

    def wake(self, partition: Partition) -> None:
        """Something changed that every waiter must look at (the partition was deleted)."""
        for wait in self._waits.get(partition, ()):
            if not wait.future.done():
                wait.future.set_result(None)

    def wake_all(self) -> None:
        """Wake everybody: the broker stops."""
        for partition in list(self._waits):
            self.wake(partition)

    async def wait(
        self, partitions: Iterable[Partition], missing_bytes: int, timeout_s: float
    ) -> bool:
        """Wait until `missing_bytes` arrived in any of `partitions`, or the time is over.

        Returns True if woken, False if the time is over.
        """
        loop = asyncio.get_running_loop()
        wait = Wait(missing_bytes, loop.create_future())
        entered = list(partitions)
        for partition in entered:
            self._waits.setdefault(partition, set()).add(wait)
        timer = loop.call_later(timeout_s, _expire, wait.future)
        try:
            await wait.future
        except TimeoutError:
            return False
        finally:
            timer.cancel()
            for partition in entered:
                waits = self._waits.get(partition)
                if waits is not None:
                    waits.discard(wait)
                    if not waits:
                        del self._waits[partition]
        return True


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
