"""The memory for decompressed records: how many bytes a batch may unpack to, and how many are reserved.

The size of a compressed batch is unknown until it is unpacked. So each is tried with little memory first, and
again with more: nothing is held while more is waited for. Nearly all need the first step only, which
reserves nothing. The last step reserves the whole share: a batch that does not fit into it is refused.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.storage.would_block import SHORT_UNPACK_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidelog.broker.network.memory.share import Share

COPIES: Final = 4  # records unpacked, written again in up to twice the size, and compressed again


class Step(NamedTuple):
    """How many bytes a batch may unpack to, and how many are reserved for it and its copies."""

    unpacked_bytes: int
    reserved_bytes: int


def steps(share: Share) -> tuple[Step, ...]:
    """Returns the steps of memory with which work on records is tried, the smallest first."""
    most_bytes = share.limit_bytes // COPIES
    return (
        Step(min(SHORT_UNPACK_BYTES, most_bytes), 0),
        Step(most_bytes // 4, most_bytes),
        Step(most_bytes, share.limit_bytes),
    )


@asynccontextmanager
async def reserved(share: Share, size_bytes: int) -> AsyncIterator[None]:
    """Waits until bytes are reserved, and releases them at the end."""
    if not share.take(size_bytes):
        granted = asyncio.Event()
        wait = share.wait(size_bytes, granted.set)
        try:
            await granted.wait()
        except asyncio.CancelledError:
            if not share.leave(wait):
                share.release(size_bytes)
            raise
    try:
        yield
    finally:
        share.release(size_bytes)
