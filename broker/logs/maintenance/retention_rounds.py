"""Rounds of retention over all logs: by the clock, and on demand.

A round is due when log.retention.check.interval.ms of the broker's clock have passed, however they
passed: a step over seven days is one round. A round deletes by the deletion time (`clock_watch`). A
round on demand returns which segments were deleted and why, including those of rounds since the last one
on demand, and which logs failed. If more deletions are pending than are kept for that, the oldest are
only counted.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.logs.maintenance.rounds import DueRounds
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from tidelog.broker.logs.maintenance.services import Services
    from tidelog.storage.log.retention.deletion import Deletion

log = logging.getLogger("tidelog.retention")

_MOST_UNREPORTED = 10_000


class SweptSegment(NamedTuple):
    """A deleted segment, its partition, and whether the round was on demand."""

    topic: str
    partition: int
    deletion: Deletion
    asked: bool


class FailedRetention(NamedTuple):
    """A log for which retention failed, and why."""

    topic: str
    partition: int
    reason: str


class RetentionRound(NamedTuple):
    """The result of one round, or of several since the last one on demand."""

    deleted: list[SweptSegment]
    failed: list[FailedRetention]
    forgotten: int = 0  # deletions of earlier rounds, of any topic, that are only counted


def delete_due(
    services: Services, only: str | None = None, *, asked: bool = False
) -> RetentionRound:
    """Deletes the segments that are due, of all logs or of one topic's; for a thread.

    Never touches logs without a topic, or of a partition that its topic does not have: somebody has
    copied them here. Ends early when the broker stops.
    """
    topics = services.reconciler.served
    done = RetentionRound([], [])
    for topic, index in services.store.names():
        if not services.ready:
            break
        if only not in (None, topic):
            continue
        if topic not in topics or index >= topics[topic].partitions:
            continue
        try:
            if services.store.keeps_everything(topic, index, services.clock_watch.deletion_ms()):
                continue  # and need not be opened
            partition = services.partitions.open_log(topic, index)
            if partition is None:
                continue
            if partition.offline is not None:
                if asked:  # other deletions are already stored
                    done.failed.append(FailedRetention(topic, index, partition.offline))
                continue
            corrections = partition.append_clock.corrections
            deletion_ms = services.clock_watch.deletion_ms()
            deleted = partition.retainer.apply_retention(deletion_ms, corrections)
        except BrokerError as error:
            done.failed.append(FailedRetention(topic, index, error.message))
            continue
        except Exception as error:  # the failure of one log must not stop the others
            log.exception("retention failed", extra={"log": f"{topic}-{index}"})
            done.failed.append(FailedRetention(topic, index, repr(error)))
            continue
        services.metrics.segments_deleted += len(deleted)
        done.deleted.extend(SweptSegment(topic, index, deletion, asked) for deletion in deleted)
    return done


class RetentionRounds(DueRounds):
    """The rounds of one broker, one after another."""

    log = log
    failed = "retention round failed"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._unreported: deque[SweptSegment] = deque(maxlen=_MOST_UNREPORTED)
        self._forgotten = 0

    def _interval_ms(self) -> int:
        return self._services.config.log_retention_check_interval_ms

    async def _do_due(self) -> None:
        deleted = (await self._round(None, asked=False)).deleted
        self._forgotten += max(len(self._unreported) + len(deleted) - _MOST_UNREPORTED, 0)
        self._unreported += deleted

    async def sweep(self, topic: str | None = None) -> RetentionRound:
        """Does a round now; returns also the deletions since the last round on demand."""
        async with self._lock:
            done = await self._round(topic, asked=True)
            reported, forgotten = [*self._unreported, *done.deleted], self._forgotten
            self._unreported.clear()
            if topic is None:
                self._forgotten = 0
            else:
                self._unreported += (swept for swept in reported if swept.topic != topic)
                reported = [swept for swept in reported if swept.topic == topic]
            return RetentionRound(reported, done.failed, forgotten)

    async def _round(self, topic: str | None, *, asked: bool) -> RetentionRound:
        await self._services.clock_watch.observe()
        done = await self._services.pools.maintenance.run_to_end(
            partial(delete_due, self._services, topic, asked=asked)
        )
        for failed in done.failed:
            where = {"log": f"{failed.topic}-{failed.partition}"}
            log.error("retention failed", extra=where | {"reason": failed.reason})
        return done
