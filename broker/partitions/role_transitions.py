"""Changes of roles, thousands at once when a broker dies: in slices on the loop, together in threads.

Each role that begins writes to its log, which may wait for the disk. A thread does one piece of
such work after another, and passes to the loop all that has ended meanwhile in one call: to hand over
each piece by itself costs more than the piece. The loop begins and ends a few changes in each of its
turns, so that thousands of them hold up nothing else, and least of all the lease of the session. Only
a few logs are opened at a time, because that keeps processors busy more than disks.

Each log directory has its own queues: a disk that does not answer holds up no other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidelog.broker.partitions.services import Services
    from tidelog.broker.pools import Pool
    from tidelog.storage.log.partition import Partition

_A_TURN = 32  # changes that the loop begins, and ends, in one of its turns: a few milliseconds
_THREADS = 6  # of one log directory: its other syncs have some left
_OPENINGS = 2  # of logs of one directory, at a time


class RoleTransitions:
    """The changes of roles that wait for their turn, or for a thread; used on the event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._openings: dict[Path | None, asyncio.Semaphore] = {}
        self._queues: dict[Pool, _Queue] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._left = _A_TURN  # changes that may begin in this turn
        self._counts = False  # the next turn will count anew

    async def turn(self) -> None:
        """Returns when a change may begin: at once for a few, in later turns for the others."""
        loop = asyncio.get_running_loop()
        if not self._counts:
            self._counts = True
            loop.call_soon(self._next_turn)
        if self._left:
            self._left -= 1
            return
        waiter = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _next_turn(self) -> None:
        self._left = _A_TURN
        while self._waiting and self._left:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._left -= 1
        self._counts = self._left < _A_TURN
        if self._counts:
            asyncio.get_running_loop().call_soon(self._next_turn)

    @property
    def is_over(self) -> bool:
        """Whether the broker stops."""
        return self._services.pools.reads.is_stopping

    async def open(self, topic: str, index: int) -> Partition:
        """Returns a log, opened in a thread if need be. Raises what `Partitions.open` raises."""
        services = self._services
        if not services.store.is_closed(topic, index):
            return services.partitions.opened(topic, index)
        where = services.store.directory_of(topic, index)
        openings = self._openings.setdefault(where, asyncio.Semaphore(_OPENINGS))
        async with openings:
            return await services.partitions.open(topic, index)

    async def run(
        self, partition: Partition, work: Callable[..., object], *arguments: object
    ) -> None:
        """Returns when a thread has done the work on a partition's log. Raises what it raises."""
        pool = self._services.pools.syncs.of(partition)
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = _Queue(pool)
        await queue.put(work, arguments)


class _Piece(NamedTuple):
    """What to do, and the future of its end."""

    work: Callable[..., object]
    arguments: tuple[Any, ...]
    done: asyncio.Future[None]


class _Queue:
    """The work for the logs of one directory."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # for all that follows
        self._waiting: deque[_Piece] = deque()
        self._threads = 0  # that take from it
        self._ended: deque[tuple[_Piece, Exception | None]] = deque()
        self._will_deliver = False  # the loop will handle what has ended

    def put(self, work: Callable[..., object], arguments: tuple[Any, ...]) -> asyncio.Future[None]:
        """Returns a future that is done when a thread has done the work.

        Raises RuntimeError when the broker has stopped.
        """
        piece = _Piece(work, arguments, self._loop.create_future())
        with self._lock:
            self._waiting.append(piece)
            is_thread_needed = self._threads < _THREADS
            self._threads += is_thread_needed
        if is_thread_needed:
            self._pool.submit(self._work)
        return piece.done

    def _work(self) -> None:
        """In a thread: one piece after another, until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                piece = self._waiting.popleft()
            error: Exception | None = None
            try:
                piece.work(*piece.arguments)
            except Exception as raised:  # noqa: BLE001 - raised where the work is awaited
                error = raised
            with self._lock:
                self._ended.append((piece, error))
                delivers, self._will_deliver = not self._will_deliver, True
            if delivers:
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """On the loop: ends some of the futures, and the others in the next turns."""
        with self._lock:
            ended = [self._ended.popleft() for _ in range(min(_A_TURN, len(self._ended)))]
            self._will_deliver = goes_on = bool(self._ended)
        for piece, error in ended:
            if piece.done.done():
                continue  # nobody waits for it any more
            if error is None:
                piece.done.set_result(None)
            else:
                piece.done.set_exception(error)
        if goes_on:
            self._loop.call_soon(self._deliver)
