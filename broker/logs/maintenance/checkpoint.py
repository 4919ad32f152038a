"""A checkpoint: flushes every log, and wakes the requests that wait for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.pools import Pools
    from tidelog.storage.directory.store import LogStore


class Waiters(Protocol):
    """The requests that wait for offsets of logs."""

    def advanced_anywhere(self) -> None:
        """Wakes all of them."""


async def checkpoint(store: LogStore, pools: Pools, waiting: Waiters) -> None:
    """Flushes every log, and wakes the requests that wait for a durable offset.

    Raises KafkaStorageError.
    """
    try:
        await pools.checkpoints.run_to_end(store.checkpoint)
    finally:
        waiting.advanced_anywhere()
