"""As which times compaction.strategy=timestamp compares the records of a log, batch by batch.

The rules are in `storage/time/event_time.py`. Where an append time is unknown, the moment of
adoption takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.segment.appended.entries import Cursor
from tidelog.storage.time.corrections import judged
from tidelog.storage.time.event_time import compared_stamp, comparison_limit
from tidelog.storage.time.timestamp import MAX_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Batch
    from tidelog.storage.compaction.job import Job
    from tidelog.storage.segment.segment import Segment


class Compared(NamedTuple):
    """As what the record times of a batch count."""

    limit: int = MAX_TIMESTAMP  # at most as this
    stamp: int | None = None  # all of them as this; None: each record has its own


class ComparedTimes:
    """Walks over a log; segments and offsets must grow from call to call."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._append_times: Cursor | None = None
        self._latest_stamp: int | None = None  # as which a record counts that the broker stamped

    def enter(self, segment: Segment) -> None:
        """Continues with the batches of another segment."""
        self._append_times = Cursor(segment.append_times)

    def of(self, batch: Batch) -> Compared:
        """Returns as what the times of the next batch count. Raises OSError."""
        assert self._append_times is not None, "no segment was entered"
        job, stamp = self._job, batch.max_timestamp
        # A wrapper of format 0 or 1 has no first offset; its last one has the same append time.
        offset = batch.last_offset
        append_time_ms = self._append_times.at(offset)
        if append_time_ms is None:
            written_ms = job.adoptions.time_of(offset)
        else:
            written_ms = judged(job.corrections, offset, append_time_ms)
        if not batch.is_log_append_time or stamp == NO_TIMESTAMP:
            return Compared(comparison_limit(written_ms, job.event_slack_ms))
        stamp = compared_stamp(
            stamp, written_ms, self._latest_stamp, is_adopted=append_time_ms is None
        )
        self._latest_stamp = stamp
        return Compared(stamp=stamp)
