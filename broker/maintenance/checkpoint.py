"""A checkpoint: every log is made durable, and who waits for that is notified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.pools import Pools
    from tidelog.storage.directory.store import LogStore


class Waiters(Protocol):
    """Those who wait for offsets of logs."""

    def advanced_anywhere(self) -> None:
        """Notifies all of them."""


async def checkpoint(store: LogStore, pools: Pools, waiting: Waiters) -> None:
    """Makes every log durable, and notifies those who wait of what can be read only now.

    Raises KafkaStorageError.
    """
    try:
        await pools.checkpoints.run_to_end(store.checkpoint)
    finally:
        waiting.advanced_anywhere()
