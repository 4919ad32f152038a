"""Group sync: one sync makes the appends of many producers durable, where the topic asks for that.

While a partition's log is being made durable in a thread, appends to it go on. What needs more than
this sync covers is left to the next one, which covers everything appended meanwhile. So there are
as many syncs as the disk manages, however many producers there are. Each partition has one timer
for flush.ms. Those who wait for a sync wait in `purgatory.py`, which is notified of its outcome.

A sync that fails takes the log offline, and those who wait are refused. If it could not be tried at
all, it is tried again: what is stored must not be refused, because it would be read later. After
half a minute of that the log goes offline too, so that producers get an answer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.timer import Timer
from tidelog.config.setting import LONG_MAX
from tidelog.protocol.errors import KafkaStorageError, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.partitions.purgatory import LogLeader, Purgatory
    from tidelog.broker.pools import Pool
    from tidelog.storage.log.partition import Partition

_RETRY_S = 1.0  # after a sync that could not be tried, for want of descriptors for example
_MOST_TRIES = 30


class GroupCommit:
    """Runs the syncs of all partitions, one at a time for each."""

    def __init__(
        self,
        pool_of: Callable[[Partition], Pool],
        purgatory: Purgatory,
        leaders: Mapping[Partition, LogLeader],
        metrics: Metrics,
    ) -> None:
        """`leaders` are those of the logs that have followers, or may have some."""
        self._pool_of = pool_of
        self._purgatory = purgatory
        self._leaders = leaders
        self._metrics = metrics
        # The offset up to which a log shall be durable, of partitions with a sync to come.
        self._wanted: dict[Partition, int] = {}
        self._timers: dict[Partition, Timer] = {}
        self._failed_tries: dict[Partition, int] = {}  # since the last sync that succeeded

    def request(self, partition: Partition, offset: int) -> None:
        """Requests that a log is made durable up to an offset at least.

        `Purgatory.advanced` is called when it is, `Purgatory.refuse` with what `Partition.commit`
        raises.
        """
        wanted = self._wanted.get(partition)
        if wanted is None:
            self._wanted[partition] = offset
            # First let the others of this round append.
            asyncio.get_running_loop().call_soon(self._start, partition)
        elif wanted < offset:
            self._wanted[partition] = offset

    def request_later(self, partition: Partition) -> None:
        """Requests that a log is made durable flush.ms from now, or sooner if asked before.

        Does nothing where flush.ms is not set.
        """
        flush_ms = partition.config.flush_ms
        if flush_ms == LONG_MAX:
            return
        at_s = asyncio.get_running_loop().time() + flush_ms / 1000
        timer = self._timers.get(partition)
        if timer is not None:
            if timer.at_s <= at_s:
                return
            timer.cancel()  # flush.ms was longer then
        self._timers[partition] = Timer(at_s, self._due, partition)

    def _due(self, partition: Partition) -> None:
        del self._timers[partition]
        if not partition.is_deleted:
            self.request(partition, partition.log_end_offset)

    def _start(self, partition: Partition) -> None:
        """Sends one sync to a thread: it covers everything appended when it begins."""
        try:
            work = self._pool_of(partition).submit(partition.commit)
        except RuntimeError:  # the broker stops; closing the logs makes them durable
            self._failed(partition, NotLeaderOrFollower("the broker stops"))
            return
        work.add_done_callback(partial(self._done, partition))

    def _done(self, partition: Partition, work: asyncio.Future[int]) -> None:
        """Notifies those whom it covered, and begins again for those who came later."""
        error = work.exception()
        if error is not None:
            may_retry = partition.offline is None and not partition.is_deleted
            if may_retry and isinstance(error, KafkaStorageError):
                self._try_again(partition, error)
            else:
                self._failed(partition, error)
            return
        self._failed_tries.pop(partition, None)
        self._metrics.commits += 1
        leader = self._leaders.get(partition)
        if leader is not None:
            leader.flushed()
        self._purgatory.advanced(partition)
        wanted = self._wanted[partition]
        if work.result() < min(wanted, partition.log_end_offset):  # the log may be cut meanwhile
            self._start(partition)
        else:
            del self._wanted[partition]

    def _try_again(self, partition: Partition, error: KafkaStorageError) -> None:
        """Tries a sync again after a while, or takes the log offline after too many tries."""
        tries = self._failed_tries.get(partition, 0) + 1
        if tries < _MOST_TRIES:
            self._failed_tries[partition] = tries
            asyncio.get_running_loop().call_later(_RETRY_S, self._start, partition)
            return
        why = f"no sync could be tried {tries} times: {error.message}"
        try:
            work = self._pool_of(partition).submit(partition.go_offline, why)
        except RuntimeError:  # the broker stops
            self._failed(partition, error)
            return
        work.add_done_callback(lambda _: self._failed(partition, error))

    def _failed(self, partition: Partition, error: BaseException) -> None:
        """Passes the failure on: what was asked for may not be durable."""
        self._failed_tries.pop(partition, None)
        del self._wanted[partition]
        self._purgatory.refuse(partition, error)
