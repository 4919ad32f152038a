"""Appends to partitions: on the event loop or in a thread, always in the order of their requests.

A small append runs at once on the loop. An append runs in a thread if it is large and compressed,
unpacks to much, has to be converted, or is the first one to a log that must be read first. While an
append of a partition is in a thread, later ones queue behind it. So records are written in the
order in which their requests arrived. An append gets its offset and its append time when it is
written.

Where the topic asks for it (flush.messages), an append is answered when the log is durable up to
it. Appends do not wait for each other's syncs (`group_commit.py`); who waits, waits in `purgatory.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.broker.network.memory.unpacking import steps
from tidelog.protocol.errors import MessageTooLarge, NotLeaderOrFollower
from tidelog.storage.log.high_watermark import AS_REPLICATED
from tidelog.storage.time.append_time import ClockWentBack
from tidelog.storage.would_block import NeedsMemory, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.clock import Clock
    from tidelog.broker.logs.maintenance.clock_watch import ClockWatch
    from tidelog.broker.network.memory.share import Share
    from tidelog.broker.network.memory.unpacking import Step
    from tidelog.broker.partitions.produce.group_commit import GroupCommit
    from tidelog.broker.partitions.purgatory import LogLeader, Purgatory
    from tidelog.broker.pools import Pool
    from tidelog.config import TopicConfig
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.partition import Appended, Partition
    from tidelog.storage.log.producers.verification import Guard


# Sizes from which (de)compression or conversion is worth a thread's hand-over (some 60 us), per codec in
# the low attribute bits: what each takes about a millisecond for.
_THREAD_BYTES = (1 << 62, 16_384, 262_144, 262_144, 65_536, 16_384, 16_384, 16_384)
_LEAST_HEAVY_BYTES = min(_THREAD_BYTES)
_CONVERT_BYTES = 65_536
_ATTRIBUTES_V2 = 22
_ATTRIBUTES_LEGACY = 17
_MAGIC = 16
_CODEC = 7


def is_heavy(records: Buffer, config: TopicConfig) -> bool:
    """Whether appending `records` would hold the loop for long, as far as their size shows."""
    size = len(records)
    if size <= _LEAST_HEAVY_BYTES:
        return False
    magic = records[_MAGIC]
    may_convert = magic != config.target_magic or config.message_timestamp_missing_values
    if may_convert and size >= _CONVERT_BYTES:
        return True
    codec = records[_ATTRIBUTES_V2 if magic == 2 else _ATTRIBUTES_LEGACY] & _CODEC
    return size >= min(_THREAD_BYTES[codec], _THREAD_BYTES[config.compression or 0])


class _Write(Protocol):
    """Writes to a log: what `Partition.append` or `Partition.append_marker` is to write."""

    def __call__(self, *, now_ms: int, may_block: bool = True, **more: int | None) -> Appended: ...


class _Job(NamedTuple):
    """One append that waits for its turn, and the future of its result."""

    write: _Write
    waits: bool  # the answer waits for the disk, where the topic asks for it
    answer: asyncio.Future[Appended]
    may_unpack: bool  # so its memory is reserved first


class Appends:
    """Runs appends, each partition's in order.

    Every append is passed to the purgatory, whether or not anybody still waits for its answer.
    """

    def __init__(
        self,
        clock: Clock,
        watch: ClockWatch,
        pool: Pool,
        first_appends: Pool,
        syncs: GroupCommit,
        purgatory: Purgatory,
        leaders: Mapping[Partition, LogLeader],
        memory: Share,
    ) -> None:
        """`leaders` are those of the logs that have followers, or may have some.

        `first_appends` runs those that read the log first, which may take seconds.

        `watch` is that of the clock.
        Records that are unpacked in threads are counted in `memory`.
        """
        self._memory = memory
        self._steps = steps(memory)
        self._clock = clock
        self._watch = watch
        self._pool = pool
        self._first_appends = first_appends
        self._syncs = syncs
        self._purgatory = purgatory
        self._leaders = leaders
        self._queues: dict[Partition, deque[_Job]] = {}
        self._finished: dict[Partition, asyncio.Future[None]] = {}  # where somebody waits for that

    async def finished(self, partition: Partition) -> None:
        """Returns when no append of the partition is in a thread, nor waits for one that is."""
        while partition in self._queues:
            finished = self._finished.get(partition)
            if finished is None:
                finished = self._finished[partition] = asyncio.get_running_loop().create_future()
            await asyncio.wait([finished])

    def is_busy(self, partition: Partition) -> bool:
        """Whether an append of the partition is in a thread or waits for one that is."""
        return partition in self._queues

    def append_now(
        self, partition: Partition, records: Buffer, produce_version: int
    ) -> Appended | None:
        """Appends on the loop. Returns None, and appends nothing, if it may have to wait.

        Raises what `Partition.append` raises.
        """
        if partition.state.rules.has_flush_rules or partition in self._queues:
            return None
        if len(records) > _LEAST_HEAVY_BYTES and is_heavy(records, partition.config):
            return None
        try:  # what `_write` does, without a call: nearly every append comes by here
            now_ms = self._clock.now_ms()
            appended = partition.append(
                records,
                now_ms=now_ms,
                produce_version=produce_version,
                may_block=False,
                least_ms=self._least_ms(partition, now_ms) if self._watch.has_left else None,
            )
        except WouldBlock:
            return None
        leader = self._leaders.get(partition)
        if leader is not None:
            leader.note_append(appended)
        elif partition.state.policy is not AS_REPLICATED:
            self._purgatory.appended(partition, appended)
        return appended

    def append(
        self,
        partition: Partition,
        records: Buffer,
        produce_version: int,
        *,
        waits: bool = True,
        guard: Guard | None = None,
        internal: bool = False,
    ) -> Appended | asyncio.Future[Appended]:
        """Appends now and returns the result, or returns a future of it.

        Without `waits` the answer does not wait for the disk, whatever the topic asks for. `guard`
        is that of a verified transaction, with `internal` the broker itself writes. Raises (or
        the future raises) what `Partition.append` and `Partition.commit` raise, and
        NotLeaderOrFollower when the broker stops before a thread has begun the append. A future that
        is cancelled before its turn appends nothing; once in the thread the append goes through.
        """
        heavy = len(records) > _LEAST_HEAVY_BYTES and is_heavy(records, partition.config)
        write = partial(
            partition.append,
            records,
            produce_version=produce_version,
            guard=guard,
            internal=internal,
        )
        return self._write(partition, write, waits=waits, is_heavy=heavy)

    def append_marker(
        self,
        partition: Partition,
        producer: tuple[int, int],
        *,
        is_commit: bool,
        coordinator_epoch: int,
    ) -> Appended | asyncio.Future[Appended]:
        """Appends a transaction marker of a producer id and epoch, in its turn, as `append` does.

        Raises, or the future raises, what `Partition.append_marker` raises.
        """
        producer_id, epoch = producer
        write = partial(
            partition.append_marker,
            producer_id,
            epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
        )
        return self._write(partition, write, waits=True, is_heavy=False, may_unpack=False)

    def _write(
        self,
        partition: Partition,
        write: _Write,
        *,
        waits: bool,
        is_heavy: bool,
        may_unpack: bool = True,
    ) -> Appended | asyncio.Future[Appended]:
        """Writes on the loop, unless it belongs in a thread or others are in one."""
        queue = self._queues.get(partition)
        if queue is None and not is_heavy:
            try:
                appended = self._written(partition, write, may_block=False)
            except WouldBlock:
                pass  # a thread does it
            else:
                return self._appended(partition, appended, waits=waits)
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        job = _Job(write, waits, answer, may_unpack)
        if queue is None:
            self._queues[partition] = deque([job])
            self._start(partition)
        else:
            queue.append(job)
        return answer

    def _appended(
        self,
        partition: Partition,
        appended: Appended,
        answer: asyncio.Future[Appended] | None = None,
        *,
        waits: bool,
    ) -> Appended | asyncio.Future[Appended]:
        """Notifies those who wait. An append to a log that leads no more may be cut: nobody waits for it.

        Returns the append, or a future that is done when it is durable.
        """
        leader = self._leaders.get(partition)
        is_replicated = partition.state.policy is AS_REPLICATED
        is_readable = is_replicated or appended.last_offset < partition.high_watermark
        if leader is not None:
            leader.note_append(appended)
        elif not is_replicated:
            self._purgatory.note_append(partition, appended)
        # Records that cannot be read yet need a sync, even if the settings have just changed, or a
        # checkpoint is about to make them durable.
        if is_readable and not (partition.has_flush_rules and partition.must_commit):
            if partition.has_flush_rules:
                self._syncs.request_later(partition)
            return appended
        self._syncs.request(partition, appended.last_offset + 1)
        if not waits:
            return appended
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
        self._purgatory.add_acknowledgement(partition, appended, answer)
        return answer

    def _start(self, partition: Partition) -> None:
        """Sends the next append whose answer was not cancelled to a thread.

        When the broker stops, no thread runs the append. All that wait are refused with an error after
        which clients ask again, and find another broker or this one when it has started anew.
        """
        queue = self._queues[partition]
        while queue:
            job = queue[0]
            if not job.answer.cancelled() and self._submit(partition, job, self._steps[0]):
                return
            queue.popleft()
        del self._queues[partition]
        finished = self._finished.pop(partition, None)
        if finished is not None:
            finished.set_result(None)

    def _submit(self, partition: Partition, job: _Job, step: Step) -> bool:
        """Sends an append to a thread when its memory is reserved; False if the pool has stopped.

        Memory that is needed for a step is reserved before, perhaps later.
        """
        if step.reserved_bytes and not self._memory.take(step.reserved_bytes):
            granted = partial(self._granted_later, partition, job, step)
            self._memory.wait(step.reserved_bytes, granted)
            return True
        return self._submit_granted(partition, job, step)

    def _granted_later(self, partition: Partition, job: _Job, step: Step) -> None:
        """Goes on with an append for which memory is reserved at last."""
        if job.answer.cancelled():
            self._memory.release(step.reserved_bytes)
        elif self._submit_granted(partition, job, step):
            return
        self._queues[partition].popleft()
        self._start(partition)

    def _submit_granted(self, partition: Partition, job: _Job, step: Step) -> bool:
        pool = self._pool if partition.is_read else self._first_appends
        try:
            work = pool.submit(self._run, partition, job, step.unpacked_bytes)
        except RuntimeError:  # the pool has stopped
            self._memory.release(step.reserved_bytes)
            job.answer.set_exception(NotLeaderOrFollower("the broker stops"))
            return False
        work.add_done_callback(partial(self._done, partition, step))
        return True

    def _run(self, partition: Partition, job: _Job, unpacked_bytes: int) -> Appended:
        """Runs in the thread: time and offset are assigned now, when the records are written."""
        write = partial(job.write, unpack_limit=unpacked_bytes) if job.may_unpack else job.write
        while True:
            try:
                return self._written(partition, write)
            except ClockWentBack:
                self._watch.correct(partition)

    def _written(self, partition: Partition, write: _Write, **how: bool) -> Appended:
        """Writes at the time that it is now."""
        now_ms = self._clock.now_ms()
        if self._watch.has_left:
            return write(now_ms=now_ms, least_ms=self._least_ms(partition, now_ms), **how)
        return write(now_ms=now_ms, **how)

    def _least_ms(self, partition: Partition, now_ms: int) -> int | None:
        return self._watch.least_append_ms(partition, now_ms)

    def _done(self, partition: Partition, step: Step, work: asyncio.Future[Appended]) -> None:
        """Passes the outcome on and starts the next append."""
        self._memory.release(step.reserved_bytes)
        job, error = self._queues[partition][0], work.exception()
        if isinstance(error, NeedsMemory):
            following = self._steps.index(step) + 1
            if following < len(self._steps):
                if self._submit(partition, job, self._steps[following]):
                    return
            else:
                self._memory.refused += 1
                error = MessageTooLarge(f"{error}, for which memory.limit.bytes leaves no room")
        self._queues[partition].popleft()
        self._answer(partition, job, work, error)
        self._start(partition)

    def _answer(
        self,
        partition: Partition,
        job: _Job,
        work: asyncio.Future[Appended],
        error: BaseException | None,
    ) -> None:
        answer = job.answer
        if error is not None:
            if not answer.done():
                answer.set_exception(error)
            return
        waiting = answer if job.waits and not answer.cancelled() else None
        appended = self._appended(partition, work.result(), waiting, waits=waiting is not None)
        if appended is not answer and not answer.cancelled():
            answer.set_result(work.result())
