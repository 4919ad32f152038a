"""A fetch that has found too little: it waits in the purgatory for bytes that it may read.

An append subtracts its bytes; a fetch that has enough is woken. A fetch of committed data counts no
bytes while an open transaction holds the last stable offset back: it is woken when that moves, and
reads how much there is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.partitions.purgatory import Purgatory
    from tidelog.storage.log.partition import Partition


class DelayedFetch:
    """One fetch waiting for `missing_bytes` more."""

    __slots__ = ("future", "is_held_back", "missing_bytes")

    def __init__(self, missing_bytes: int, future: asyncio.Future[None]) -> None:
        self.missing_bytes = missing_bytes
        self.future = future
        self.is_held_back = False  # bytes came that an open transaction hides

    def wake(self) -> None:
        """Wakes the fetch, which reads again."""
        if not self.future.done():
            self.future.set_result(None)

    def took(self, size: int) -> None:
        """Counts bytes that the fetch may read."""
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wake()

    def arrived(self, partition: Partition, size: int, read_to: int | None) -> bool:
        """Counts the bytes, if the fetch may read them."""
        if read_to is None or self.took_stable(partition, read_to):
            self.took(size)
        return True

    def invalidated(self) -> bool:
        """Wakes the fetch, which reads again."""
        self.wake()
        return True

    async def wait(self, timeout_s: float) -> bool:
        """Returns True when it is woken, False when the time is over."""
        timer = asyncio.get_running_loop().call_later(timeout_s, _expire, self.future)
        try:
            await self.future
        except TimeoutError:
            return False
        finally:
            timer.cancel()
        return True

    def took_stable(self, partition: Partition, read_to: int) -> bool:
        """Returns whether bytes that came to a partition count for this fetch of committed data.

        The fetch has read up to the offset `read_to`. If other bytes become readable, it is woken.
        """
        _, high_watermark, stable = partition.state.ends
        if stable == read_to:
            self.is_held_back = True
        elif self.is_held_back or stable != high_watermark:
            self.wake()
        else:
            return True
        return False


async def wait_for_bytes(
    purgatory: Purgatory,
    partitions: Iterable[Partition],
    missing_bytes: int,
    timeout_s: float,
    stable_offsets: Sequence[int] | None = None,
) -> bool:
    """Waits until `missing_bytes` arrived in any of `partitions`, or the time is over.

    A fetch of committed data passes the last stable offset up to which it has read each partition.
    Returns True if woken, False if the time is over.
    """
    fetch = DelayedFetch(missing_bytes, asyncio.get_running_loop().create_future())
    entered = list(partitions)
    for number, partition in enumerate(entered):
        read_to = None
        if stable_offsets is not None:
            read_to = stable_offsets[number]
            fetch.is_held_back |= read_to != partition.high_watermark
        purgatory.enter(partition, fetch, read_to)
    try:
        return await fetch.wait(timeout_s)
    finally:
        for partition in entered:
            purgatory.leave(partition, fetch)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
