"""Passes of scrubbing: read closed segments of all logs again, slowly, to find damaged batches.

A pass starts when log.scrub.interval.ms have passed since the last one ended, or at the start if there
was none. A pass reads at most log.scrub.io.max.bytes.per.second, in slices in a thread. Its progress is
stored in the scrub checkpoint, so a broker that stops continues at its next start. Bad batches are logged,
counted and shown by `tidelog doctor`, until a later pass finds the segment good or deleted; nothing is
repaired or removed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.broker.logs.maintenance.rounds import DueRounds
from tidelog.protocol.errors import BrokerError
from tidelog.storage.directory.checked_json import CheckedJsonError
from tidelog.storage.directory.scrub_file import (
    Damage,
    ScrubProgress,
    read_progress,
    write_progress,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.logs.maintenance.services import Services
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.scrubber import Scrubbing
    from tidelog.storage.segment.scrub import BadBatch

log = logging.getLogger("tidelog.scrub")

_SLICE_BYTES = 256 * 1024
_MOST_LINES = 5  # of the log, for one segment
_MOST_STORED = 1_000  # damaged segments that a restart knows
_STORE_MS = 10_000
_TRIES = 3  # at a segment that was replaced while it was read


class ScrubRounds(DueRounds):
    """The passes of one broker, one after another."""

    log = log
    failed = "scrubbing round failed"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._figures = services.metrics.scrub
        self._position: tuple[str, int, int] | None = None  # where a pass continues
        self._stored_ms: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether there are passes at all."""
        return self._interval_ms() >= 0

    async def run(self) -> None:
        """Continues the pass that the last run of the broker left; makes each pass when it is due."""
        self._restore()
        await super().run()

    def _interval_ms(self) -> int:
        return self._services.config.log_scrub_interval_ms

    def _restore(self) -> None:
        try:
            progress = read_progress(self._services.store.log_dirs[0])
        except (OSError, CheckedJsonError) as error:
            log.warning("scrub progress lost", extra={"reason": str(error)})
            progress = ScrubProgress()
        self._position, self._figures.ended_ms = progress.at, progress.ended_ms
        self._figures.restore(progress.damage)
        left_ms = 0
        if progress.at is None and progress.ended_ms is not None:
            interval_ms = self._interval_ms()
            passed_ms = self._services.clock.now_ms() - progress.ended_ms
            left_ms = min(max(interval_ms - passed_ms, 0), interval_ms)
        self._due_ms = self._services.clock.steady_ms() + left_ms

    async def _store(self, ended_ms: int | None) -> None:
        self._stored_ms = self._services.clock.steady_ms()
        damage = tuple(self._figures.damage()[:_MOST_STORED])
        progress = ScrubProgress(ended_ms, self._position, damage)
        try:
            await self._services.pools.maintenance.run_to_end(
                write_progress, self._services.store.log_dirs[0], progress
            )
        except OSError as error:
            log.warning("scrub progress not written", extra={"reason": str(error)})

    async def _do_due(self) -> None:
        begin = self._position
        names = sorted(self._services.store.names())
        for topic, index in names:
            base_offset = 0
            if begin is not None:
                if (topic, index) < begin[:2]:
                    continue
                if (topic, index) == begin[:2]:
                    base_offset = begin[2]
            try:
                await self._scrub_log(topic, index, base_offset)
            except BrokerError as error:  # the other logs are read all the same
                where = {"log": f"{topic}-{index}"}
                log.error("scrubbing failed", extra=where | {"reason": error.message})
        self._figures.keep_logs(set(names))
        self._position, ended_ms = None, self._services.clock.now_ms()
        await self._store(ended_ms)
        # Set after the write: a reader who sees the end may expect the next pass one interval later.
        self._figures.ended_ms = ended_ms
        damaged = sum(each.bad_batches > 0 for each in self._figures.damage())
        log.info("scrub pass finished", extra={"damaged_segments": damaged})

    async def _scrub_log(self, topic: str, index: int, base_offset: int) -> None:
        partition = await self._services.pools.maintenance.run_to_end(
            self._open_closed_segments, topic, index
        )
        if partition is None:
            return
        tries, bases = 0, partition.scrubber.base_offsets()
        self._figures.keep(topic, index, bases)
        scrubbing = partition.scrubber.first(base_offset)
        while scrubbing is not None:
            base_offset = scrubbing.segment.base_offset
            self._position = (topic, index, base_offset)
            now_ms = self._services.clock.steady_ms()
            if self._stored_ms is None or now_ms - self._stored_ms >= _STORE_MS:
                await self._store(self._figures.ended_ms)
            is_whole = await self._scrub_segment(partition, scrubbing)
            tries = 0 if is_whole else tries + 1
            if is_whole or tries == _TRIES:
                base_offset += 1
            scrubbing = partition.scrubber.first(base_offset)

    def _open_closed_segments(self, topic: str, index: int) -> Partition | None:
        """Opens a log, if it has closed segments; runs in a thread. Raises BrokerError."""
        store = self._services.store
        if not self._services.ready or not store.has_sealed_segments(topic, index):
            return None
        return self._services.partitions.open_log(topic, index)

    async def _scrub_segment(self, partition: Partition, scrubbing: Scrubbing) -> bool:
        """Reads a segment whole, at the limited rate; returns False if it was replaced meanwhile."""
        topic, index = partition.topic, partition.index
        base_offset = scrubbing.segment.base_offset
        bad: list[BadBatch] = []
        while True:
            scrubbed = await self._services.pools.maintenance.run_to_end(
                partition.scrubber.slice, scrubbing, _SLICE_BYTES
            )
            if scrubbed is None:
                return False
            self._figures.bytes_read += scrubbed.read_bytes
            bad += scrubbed.bad
            await asyncio.sleep(
                scrubbed.read_bytes / self._services.config.log_scrub_io_max_bytes_per_second
            )
            if scrubbed.next is None:
                break
            scrubbing = scrubbing._replace(place=scrubbed.next)
        damage = _damage(topic, index, base_offset, bad)
        if damage is not None and damage != self._figures.known(topic, index, base_offset):
            _log_bad_batches(partition, base_offset, bad)
        self._figures.record(topic, index, base_offset, damage)
        return True


def _damage(topic: str, index: int, base_offset: int, bad: Sequence[BadBatch]) -> Damage | None:
    if not bad:
        return None
    spoilt = [each for each in bad if each.is_spoilt]
    position, offset, reason, _ = (spoilt or bad)[0]
    return Damage(topic, index, base_offset, len(spoilt), position, offset, reason)


def _log_bad_batches(partition: Partition, base_offset: int, bad: Sequence[BadBatch]) -> None:
    """Logs the bad batches of a segment: a line for each of the first ones, and one for the others."""
    from tidelog.storage.segment.scrub import UNREADABLE  # not needed at a start

    where = {"log": f"{partition.topic}-{partition.index}", "segment": base_offset}
    for each in bad[:_MOST_LINES]:
        event = "bad batch found" if each.is_spoilt else UNREADABLE
        fields = {"position": each.position, "offset": each.offset, "reason": each.reason}
        log.error(event, extra=where | fields)
    if len(bad) > _MOST_LINES:
        log.error("more bad batches found", extra=where | {"count": len(bad) - _MOST_LINES})
