"""The broker's threads: a pool with a name and a size for each kind of work.

Promises that work of one kind never waits for work of another: a converting fetch holds up no
append, and neither holds up a checkpoint, a lookup or a new topic. Nothing uses asyncio's default
pool, which has a few threads for everything.

Work on behalf of a request gets a `Permit`. The work calls `permit.check()` between partitions and between
batches, which raises `Abandoned` when the client has disconnected or the broker stops.

The event loop runs meanwhile, so a thread never iterates step by step over a dictionary or a set that
others change: it copies the collection first, in one call that runs no Python, so that the interpreter's
lock is kept: `list(d)`, `list(d.values())`, `dict(d).items()`. `list(d.items())` is no such call: it makes a
tuple for each item, at which Python 3.11 may collect garbage and switch threads. A collection that cannot be
copied so is immutable, and is replaced whole, as the image of the metadata is.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tidelog.storage.log.partition import Partition

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

_APPEND_THREADS = 2
_FIRST_APPEND_THREADS = 4
_READ_THREADS = 6
_CONVERSION_THREADS = 2
_SYNC_THREADS = 8  # of each log directory
_PROBE_THREADS = 1  # of each log directory, which has one probe at a time
_CHECKPOINT_THREADS = 2
_MAINTENANCE_THREADS = 6
_TOPIC_THREADS = 2
_HTTP_THREADS = 2
_DOCTOR_THREADS = 1
_METRICS_THREADS = 2


class Abandoned(Exception):
    """No request waits for the result of this work any more, or the broker stops."""


class Permit:
    """The limits of a piece of work, and whether it should continue.

    With `may_block` the work runs in a thread and may read files and convert; without, on the event loop.
    `unpacked_bytes` is the limit of a batch's decompressed records; with `may_need_more` the work may raise
    NeedsMemory, and is tried again with more.
    """

    __slots__ = ("_is_withdrawn", "_pool", "may_block", "may_need_more", "unpacked_bytes")

    def __init__(
        self, pool: Pool | None = None, unpacked_bytes: int = 0, *, may_need_more: bool = False
    ) -> None:
        """For work in `pool`; None: on the event loop."""
        self.unpacked_bytes = unpacked_bytes
        self.may_need_more = may_need_more
        self.may_block = pool is not None
        self._pool = pool
        self._is_withdrawn = False

    def check(self) -> None:
        """Raises Abandoned when the request has ended, or the broker stops."""
        if self._is_withdrawn or (self._pool is not None and self._pool.is_stopping):
            raise Abandoned

    def withdraw(self) -> None:
        """Makes the next `check` raise."""
        self._is_withdrawn = True


ON_LOOP = Permit()


class Pool:
    """A few threads for one kind of work, which are started when they are needed."""

    def __init__(self, name: str, threads: int) -> None:
        self.is_stopping = False
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(
        self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments
    ) -> asyncio.Future[_Result]:
        """Runs `work` in a thread; the future is done when it has ended.

        Cancelling the future prevents work that has not begun. Raises RuntimeError after `stop`.
        """
        return asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def run(self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Runs `work` in a thread and returns its result.

        When the caller is cancelled, work that has begun continues, and its result is dropped.
        """
        return await self.submit(work, *arguments)

    async def run_for_request(
        self,
        work: Callable[[Permit], _Result],
        unpacked_bytes: int = 0,
        *,
        may_need_more: bool = False,
    ) -> _Result:
        """Runs `work` in a thread with a permit, withdrawn when the caller is cancelled."""
        permit = Permit(self, unpacked_bytes, may_need_more=may_need_more)
        running = self.submit(work, permit)
        try:
            return await running
        except Abandoned:
            raise asyncio.CancelledError from None  # the broker stops
        finally:
            permit.withdraw()

    async def run_to_end(
        self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments
    ) -> _Result:
        """Runs `work` in a thread, and returns only when it has ended, even if cancelled meanwhile.

        For work on logs that must not outlive its caller, since the logs close after it.
        """
        running = self.submit(work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def give_up(self) -> None:
        """Refuses more work, drops work that has not begun, and withdraws all permits."""
        self.is_stopping = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Refuses more work, and returns when all submitted work has ended."""
        self._executor.shutdown(wait=True)


class SyncPools:
    """Threads that wait for disks.

    Each log directory has its own: a disk that does not answer any more stops the logs of no other.
    """

    def __init__(self, log_dirs: Iterable[Path]) -> None:
        self._pools: dict[Path, Pool] = {}
        self._probes: dict[Path, Pool] = {}
        for path in log_dirs:
            self._pools[path] = Pool("sync", _SYNC_THREADS)
            self._probes[path] = Pool("probe", _PROBE_THREADS)

    def of(self, partition: Partition) -> Pool:
        """Returns the threads of the log directory that holds a partition."""
        return self._pools[partition.directory.parent]

    def probe_of(self, path: Path) -> Pool:
        """Returns the thread that probes the disk of a log directory.

        A probe waits for no other work: its duration is that of the disk.
        """
        return self._probes[path]

    def stop(self) -> None:
        """Refuses more work, and returns when all submitted work has ended."""
        for pool in (*self._pools.values(), *self._probes.values()):
            pool.stop()


class Pools:
    """All threads of one broker."""

    def __init__(self, log_dirs: Iterable[Path]) -> None:
        self.appends = Pool("append", _APPEND_THREADS)  # large or compressed record sets
        # Appends to logs of which up to a segment must be read first: that may take seconds.
        self.first_appends = Pool("first-append", _FIRST_APPEND_THREADS)
        self.reads = Pool("read", _READ_THREADS)  # opening logs, indexes, lookups
        self.conversions = Pool("convert", _CONVERSION_THREADS)  # for clients of older formats
        self.syncs = SyncPools(log_dirs)  # whatever waits for fsync on behalf of a request
        self.checkpoints = Pool("checkpoint", _CHECKPOINT_THREADS)
        # Rounds of retention and compaction, and loading of groups.
        self.maintenance = Pool("maintenance", _MAINTENANCE_THREADS)
        self.topics = Pool("topic", _TOPIC_THREADS)  # logs that are made or deleted
        self.http = Pool("http", _HTTP_THREADS)  # what /v1 answers
        self.doctor = Pool("doctor", _DOCTOR_THREADS)  # /v1/doctor, which examines every log
        self.metrics = Pool("metrics", _METRICS_THREADS)  # and what HTTP imports

    def stop(self) -> None:
        """Stops all pools, and returns when no thread uses a log any more.

        Reads are abandoned; work that changes a log is finished.
        """
        given_up = (self.conversions, self.reads, self.http, self.doctor, self.metrics)
        for pool in given_up:
            pool.give_up()
        for pool in (self.appends, self.first_appends, self.topics):
            pool.stop()
        self.syncs.stop()
        for pool in (self.maintenance, self.checkpoints, *given_up):
            pool.stop()


class NoDefaultPool(ThreadPoolExecutor):
    """Replaces asyncio's default pool, and refuses work: it belongs in a named pool."""

    def submit(self, *_arguments: Any, **_more: Any) -> NoReturn:
        """Raises RuntimeError."""
        raise RuntimeError("nothing may use asyncio's default pool: see broker/pools.py")
