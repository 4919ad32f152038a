"""Rounds of compaction over all logs: by the clock, and on demand.

A round is due when log.cleaner.backoff.ms of the broker's clock have passed. The round examines every log
of a topic with cleanup.policy=compact and compacts those that need it, first the longest overdue,
then the dirtiest. Each log is compacted in one of log.cleaner.threads processes
(`compaction_process`), which write files of their own; the broker swaps these into the log in a thread. A
log that cannot be read, or whose process made no progress for log.cleaner.progress.timeout.ms and
was killed, is logged and not compacted again until the next start or a round on demand. After any
other failure the next round tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.logs.maintenance.checkpoint import checkpoint
from tidelog.broker.logs.maintenance.compaction_worker import CleaningError, Worker
from tidelog.broker.logs.maintenance.rounds import DueRounds
from tidelog.broker.metrics import compaction_counters
from tidelog.broker.metrics.compaction_counters import Uncleanable
from tidelog.protocol.errors import BrokerError, CorruptMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.logs.maintenance.services import Services
    from tidelog.storage.compaction.cleaned_segment import Cleaned
    from tidelog.storage.compaction.job import Job
    from tidelog.storage.compaction.plan import DirtySection
    from tidelog.storage.log.partition import Partition


log = logging.getLogger("tidelog.compaction")

_LEAST_BACKOFF_MS = 100


class Cleaning(NamedTuple):
    """A log that was compacted."""

    topic: str
    partition: int
    first_dirty_offset: int
    segments: int
    bytes_read: int
    bytes_written: int
    asked: bool


class FailedCleaning(NamedTuple):
    """A log that could not be compacted, and why."""

    topic: str
    partition: int
    reason: str


class CompactionRound(NamedTuple):
    """The result of one round."""

    cleaned: list[Cleaning]
    failed: list[FailedCleaning]


class DirtyLog(NamedTuple):
    """A log with something to compact."""

    partition: Partition
    dirty_section: DirtySection


class CompactionRounds(DueRounds):
    """The rounds of one broker, one after another."""

    log = log
    failed = "compaction round failed"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._figures = services.metrics.compaction

    def _interval_ms(self) -> int:
        return max(self._services.config.log_cleaner_backoff_ms, _LEAST_BACKOFF_MS)

    async def _do_due(self) -> None:
        await self._round(None, asked=False)

    async def sweep(self, topic: str | None = None) -> CompactionRound:
        """Does a round now, of one topic or of all, however little is dirty."""
        async with self._lock:
            return await self._round(topic, asked=True)

    async def _round(self, topic: str | None, *, asked: bool) -> CompactionRound:
        services, done = self._services, CompactionRound([], [])
        if not services.config.log_cleaner_enable and not asked:
            return done
        found, done_failed = await services.pools.maintenance.run_to_end(
            partial(_find, services, topic, asked=asked)
        )
        done.failed.extend(done_failed)
        if found:
            # Recovery checks offsets after the recovery point for gaps, which compaction makes.
            await checkpoint(services.store, services.pools, services.purgatory)
            await self._clean_all(found, done, asked=asked)
            with contextlib.suppress(BrokerError):  # the next one logs it
                await checkpoint(services.store, services.pools, services.purgatory)
        for failed in done.failed:
            where = {"log": f"{failed.topic}-{failed.partition}"}
            log.error("compaction failed", extra=where | {"reason": failed.reason})
        return done

    async def _clean_all(
        self, found: list[DirtyLog], done: CompactionRound, *, asked: bool
    ) -> None:
        left = iter(found)
        most = max(self._services.config.log_cleaner_threads, 1 if asked else 0)
        workers = min(most, len(found))
        tasks = [
            asyncio.create_task(self._clean_some(left, done, workers, asked=asked))
            for _ in range(workers)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _clean_some(
        self, left: Iterable[DirtyLog], done: CompactionRound, workers: int, *, asked: bool
    ) -> None:
        """Compacts one log after another in one process, until none is left or the broker stops."""
        worker: Worker | None = None

        def bytes_per_second() -> float:
            return self._services.config.log_cleaner_io_max_bytes_per_second / workers

        try:
            for partition, _ in left:
                if not self._services.ready:
                    break
                try:
                    if worker is None:
                        worker = await Worker.start(bytes_per_second)
                        self._figures.processes.add(worker.pid)
                    cleaned = await self._clean(worker, partition, workers, asked=asked)
                except (BrokerError, CleaningError, OSError) as error:
                    reason = error.message if isinstance(error, BrokerError) else str(error)
                    done.failed.append(FailedCleaning(partition.topic, partition.index, reason))
                    self._figures.failures += 1
                    await self._stop_worker(worker)
                    worker = None
                    continue
                if cleaned is not None:
                    done.cleaned.append(cleaned)
        finally:
            await self._stop_worker(worker)

    async def _stop_worker(self, worker: Worker | None) -> None:
        if worker is not None:
            self._figures.processes.discard(worker.pid)
            await worker.stop()

    async def _clean(
        self, worker: Worker, partition: Partition, workers: int, *, asked: bool
    ) -> Cleaning | None:
        """Compacts one log in a worker process; returns the result, None if nothing was due.

        `workers` processes share the memory for keys. With `asked` (a round on demand) the log is
        compacted even if it is not dirty enough yet. Raises BrokerError, CleaningError and OSError; then
        the log keeps its old segments.
        """
        from tidelog.storage.log.compactor import Compaction  # imported only for compaction

        services, started_s = self._services, self._services.clock.monotonic_s()
        job = await services.pools.maintenance.run_to_end(
            partial(_begin, services, partition, workers, asked=asked)
        )
        if job is None:
            return None
        written: list[Cleaned] = []
        end_offset: int | None = None
        error: str | None = "interrupted"
        try:
            end_offset = await self._work(worker, partition, job, written)
            error = None
        except CleaningError as failure:
            error = str(failure)
            if failure.held_by is not None:
                self._figures.uncleanable[partition.topic, partition.index] = Uncleanable(
                    partition.topic_id, error, failure.held_by
                )
            raise
        except (BrokerError, OSError) as failure:
            error = str(failure)
            raise
        finally:
            read, size = sum(c.bytes_read for c in written), sum(c.size for c in written)
            # The process that writes there must have ended; else the log is not cleaned until the next start.
            if error is None or await worker.stop():
                if error is not None:
                    await services.pools.maintenance.run_to_end(partition.compactor.discard_cleaned)
                ended_ms = services.clock.now_ms()
                partition.compactor.end_cleaning(
                    end_offset, Compaction(ended_ms, read, size, error)
                )
        self._figures.uncleanable.pop((partition.topic, partition.index), None)
        self._figures.cleaned(read, size, services.clock.monotonic_s() - started_s)
        cleaning = Cleaning(
            partition.topic, partition.index, end_offset, len(written), read, size, asked
        )
        log.info("log compacted", extra=cleaning._asdict())
        return cleaning

    async def _work(
        self, worker: Worker, partition: Partition, job: Job, written: list[Cleaned]
    ) -> int:
        """Compacts and swaps in every group; returns the offset before which the log is clean."""
        from tidelog.storage.compaction.cleaned_segment import Cleaned

        directory = str(partition.directory.resolve())
        progress_timeout_s = self._services.config.log_cleaner_progress_timeout_ms / 1_000
        answer = await worker.request(
            {"directory": directory, "job": job.packed()}, progress_timeout_s
        )
        for group in range(answer["groups"]):
            if not self._services.ready:
                raise CleaningError("the broker stops")
            if partition.is_deleted:  # before it writes: another may have had the directory's name
                raise CleaningError("it was deleted meanwhile")
            cleaning = await worker.request({"group": group}, progress_timeout_s)
            cleaned = Cleaned.unpacked(cleaning["cleaned"])
            now_ms = self._services.clock_watch.deletion_ms()
            if not await _swap_in(self._services, partition, cleaned, now_ms):
                raise CleaningError("segments of it were deleted meanwhile")
            written.append(cleaned)
        end_offset: int = answer["end_offset"]
        if end_offset <= job.first_dirty_offset < job.upper_offset:
            raise CleaningError("log.cleaner.dedupe.buffer.size is too small for its keys")
        return end_offset


async def _swap_in(services: Services, partition: Partition, cleaned: Cleaned, now_ms: int) -> bool:
    return await services.pools.maintenance.run_to_end(partition.compactor.take_in, cleaned, now_ms)


def _begin(services: Services, partition: Partition, workers: int, *, asked: bool) -> Job | None:
    config, corrections = services.config, partition.append_clock.corrections
    return partition.compactor.begin_cleaning(
        services.clock_watch.deletion_ms(),
        corrections=corrections,
        asked=asked,
        durable_offset=services.store.durable_offset(partition.topic, partition.index),
        dedupe_bytes=config.log_cleaner_dedupe_buffer_size // workers,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        write_bytes=config.log_cleaner_io_buffer_size,
    )


def _find(
    services: Services, only: str | None, *, asked: bool
) -> tuple[list[DirtyLog], list[FailedCleaning]]:
    """Finds the logs to compact, the most urgent first; for a thread.

    Logs of no topic, or of a partition that its topic does not have, are never touched. Logs with
    only an active segment are not opened.
    """
    from tidelog.storage.compaction import plan

    topics, figures = services.reconciler.served, services.metrics.compaction
    found: list[DirtyLog] = []
    failed: list[FailedCleaning] = []
    figures.begin_round()
    figures.drop_deleted(topics)
    for topic, index in services.store.names():
        known = topics.get(topic)
        if not services.ready:
            break
        if only not in (None, topic) or known is None or index >= known.partitions:
            continue
        if not services.store.config_of(topic).is_compacted:
            continue
        if (topic, index) in figures.uncleanable and not asked:
            continue
        if not services.store.has_sealed_segments(topic, index):
            continue
        try:
            partition = services.partitions.open_log(topic, index)
            if partition is None or partition.offline is not None:
                continue
            dirty_section = partition.compactor.dirty_section(services.clock_watch.deletion_ms())
        except (BrokerError, OSError) as error:
            reason = error.message if isinstance(error, BrokerError) else str(error)
            failed.append(FailedCleaning(topic, index, reason))
            if isinstance(error, CorruptMessage):
                figures.uncleanable[topic, index] = Uncleanable(
                    known.topic_id, reason, compaction_counters.UNREADABLE
                )
            continue
        figures.note_dirty_section(dirty_section)
        if dirty_section.is_due or (asked and dirty_section.held_by == plan.RATIO):
            found.append(DirtyLog(partition, dirty_section))
    figures.end_round(services.clock.steady_ms())
    found.sort(
        key=lambda each: (each.dirty_section.delay_ms > 0, each.dirty_section.ratio), reverse=True
    )
    return found, failed
