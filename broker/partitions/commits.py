"""Group commit: one sync makes the appends of many producers durable, where the topic asks for that.

While a partition's log is being made durable in a thread, appends to it go on. A producer that
needs more than this sync covers waits for the next one, which covers everything appended meanwhile.
So there are as many syncs as the disk manages, however many producers there are. Each partition has
one timer for flush.ms.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from config.setting import LONG_MAX
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.metrics.counters import Metrics
    from broker.pools import Pool
    from storage.log.partition import Partition


class _Waiter(NamedTuple):
    """A future that is done when the log is durable up to an offset."""

    offset: int
    future: asyncio.Future[None]


class Commits:
    """Runs the syncs of all partitions, one at a time for each."""

    def __init__(self, pool_of: Callable[[Partition], Pool], metrics: Metrics) -> None:
        self._pool_of = pool_of
        self._metrics = metrics
        self._waiters: dict[Partition, list[_Waiter]] = {}  # of partitions with a sync to come
        self._timers: dict[Partition, asyncio.TimerHandle] = {}

    def up_to(self, partition: Partition, offset: int) -> asyncio.Future[None]:
        """Have a log made durable; the future is done when it is, up to `offset` at least.

        It raises what `Partition.commit` raises.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(offset, loop.create_future())
        waiters = self._waiters.get(partition)
        if waiters is None:
            self._waiters[partition] = [waiter]
            loop.call_soon(self._start, partition)  # first let the others of this round append
        else:
            waiters.append(waiter)
        return waiter.future

    def later(self, partition: Partition) -> None:
        """Have a log made durable flush.ms from now, or sooner if that has been asked for.

        Nothing where flush.ms is not set.
        """
        flush_ms = partition.config.flush_ms
        if flush_ms == LONG_MAX:
            return
        loop, timer = asyncio.get_running_loop(), self._timers.get(partition)
        if timer is not None:
            if timer.when() <= loop.time() + flush_ms / 1000:
                return
            timer.cancel()  # flush.ms was longer then
        self._timers[partition] = loop.call_later(flush_ms / 1000, self._due, partition)

    def _due(self, partition: Partition) -> None:
        del self._timers[partition]
        if not partition.is_deleted:
            self.up_to(partition, partition.log_end_offset).add_done_callback(_heard)

    def _start(self, partition: Partition) -> None:
        """Send one sync to a thread: it covers everything appended when it begins."""
        try:
            work = self._pool_of(partition).submit(partition.commit)
        except RuntimeError as error:  # the broker stops; closing the logs makes them durable
            self._fail(partition, BrokerError(str(error)))
            return
        work.add_done_callback(partial(self._done, partition))

    def _done(self, partition: Partition, work: asyncio.Future[int]) -> None:
        """Wake the waiters that it covered, and begin again for those who came later."""
        error = work.exception()
        if error is not None:
            self._fail(partition, error)
            return
        self._metrics.commits += 1
        durable_offset = work.result()
        left = []
        for waiter in self._waiters.pop(partition):
            if waiter.offset > durable_offset:
                left.append(waiter)
            elif not waiter.future.done():
                waiter.future.set_result(None)
        if left:
            self._waiters[partition] = left
            self._start(partition)

    def _fail(self, partition: Partition, error: BaseException) -> None:
        """Pass the failure on to every waiter: what they wait for may not be durable."""
        for waiter in self._waiters.pop(partition):
            if not waiter.future.done():
                waiter.future.set_exception(error)


def _heard(future: asyncio.Future[None]) -> None:
    """Storage has logged what failed; nobody waits for this one."""
    if not future.cancelled():
        future.exception()
