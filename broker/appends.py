"""The order of appends: who goes to a thread, and that nobody overtakes.

A small append runs at once, on the loop. A large compressed one, or one that has to be converted, would
hold up every other connection: it runs in a thread. Once an append of a partition is in a thread, those
that come after it queue behind it, so records are written in the order their requests arrived; each takes
its offset and its append time when it is written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Executor

    from broker.clock import Clock
    from storage.partition import Appended, Partition

Buffer = bytes | bytearray | memoryview

# Sizes from which decompression or conversion is worth a thread's hand-over (some 60 us), per codec in
# the low attribute bits: what each decompresses in about a millisecond.
_THREAD_BYTES = (1 << 62, 16_384, 262_144, 262_144, 65_536, 16_384, 16_384, 16_384)
_CONVERT_BYTES = 65_536
_ATTRIBUTES_V2 = 22
_ATTRIBUTES_LEGACY = 17
_MAGIC = 16


def is_heavy(records: Buffer, target_magic: int) -> bool:
    """Whether appending `records` would hold the loop for long. Trusts nothing but the size."""
    size = len(records)
    if size <= _THREAD_BYTES[1]:
        return False
    magic = records[_MAGIC]
    attributes = records[_ATTRIBUTES_V2] if magic == 2 else records[_ATTRIBUTES_LEGACY]
    if magic != target_magic and size >= _CONVERT_BYTES:
        return True
    return size >= _THREAD_BYTES[attributes & 7]


class Appends:
    """Runs appends, each partition's in order."""

    def __init__(self, clock: Clock, executor: Executor) -> None:
        self._clock = clock
        self._executor = executor
        self._queues: dict[Partition, deque[asyncio.Future[None]]] = {}

    def append(
        self, partition: Partition, records: Buffer, produce_version: int
    ) -> Appended | Coroutine[Any, Any, Appended]:
        """Append now and return the result, or return a coroutine that waits for it.

        Raises (or the coroutine raises) what `Partition.append` raises.
        """
        if partition not in self._queues and not is_heavy(records, partition.config.target_magic):
            return partition.append(
                records, now_ms=self._clock.now_ms(), produce_version=produce_version
            )
        turn = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(partition, deque())
        queue.append(turn)
        if len(queue) == 1:
            turn.set_result(None)
        return self._queued(partition, records, produce_version, turn)

    async def _queued(
        self,
        partition: Partition,
        records: Buffer,
        produce_version: int,
        turn: asyncio.Future[None],
    ) -> Appended:
        queue = self._queues[partition]
        try:
            await turn
        except asyncio.CancelledError:
            self._leave(partition, queue, turn)
            raise
        work = asyncio.get_running_loop().run_in_executor(
            self._executor,
            lambda: partition.append(
                records, now_ms=self._clock.now_ms(), produce_version=produce_version
            ),
        )
        # The thread cannot be called back: the next append waits for it even if this request is gone.
        work.add_done_callback(lambda _: self._leave(partition, queue, turn))
        try:
            return await asyncio.shield(work)
        finally:
            # An error's traceback holds this frame: with `work` in it the two would hold each other,
            # and what the failed append had unpacked, until the garbage collector came by.
            del work

    def _leave(
        self,
        partition: Partition,
        queue: deque[asyncio.Future[None]],
        turn: asyncio.Future[None],
    ) -> None:
        """Give the turn to the next append of the partition."""
        was_first = bool(queue) and queue[0] is turn
        if turn in queue:
            queue.remove(turn)
        if not queue:
            self._queues.pop(partition, None)
        elif was_first and not queue[0].done():
            queue[0].set_result(None)
