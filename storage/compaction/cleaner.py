"""Compacting sealed segments into `.cleaned` files that hold the records that stay (KIP-534).

The cleaner reads the log twice, as Kafka's LogCleaner does. The first pass collects the keys of the
dirty section, which begins where the last cleaning ended. The second pass reads all segments, clean
and dirty, in groups that fit into one segment, and writes what stays of each group. With
compaction.strategy=timestamp it also reads the clean section before and after the first pass, and
what cannot be cleaned yet if tombstones are due. No segment is changed or renamed here: `swap` does
that. What `clean` returns is durable, file names included.

Offsets, times, formats, codecs, producers and epochs do not change, and `.appendtimes` keeps the
append time of every batch that stays. A cleaned segment has the indexes that appending its batches
would have made.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records import kernels, survivors
from tidelog.protocol.records.batch import verify
from tidelog.protocol.records.framing import is_readable_by_java
from tidelog.storage import filenames
from tidelog.storage.compaction.cleaned_segment import CleanedSegment, Survivor
from tidelog.storage.compaction.compared_times import Compared, ComparedTimes
from tidelog.storage.compaction.decided_transactions import Transactions
from tidelog.storage.compaction.due_tombstones import DueTombstones
from tidelog.storage.compaction.horizons import NONE, Horizons
from tidelog.storage.segment import transaction_index
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.corrections import judged
from tidelog.storage.time.timestamp import exceeds, later
from tidelog.storage.time.tombstones import (
    counted_horizon,
    delete_horizon,
    is_past_horizon,
    keeps_old_tombstones,
    old_format_horizon,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidelog.protocol.records.layout import Batch
    from tidelog.storage.compaction.cleaned_segment import Cleaned
    from tidelog.storage.compaction.job import Job
    from tidelog.storage.segment.log_file import Found

_MOST_SEGMENTS = 64  # cleaned into one: appends wait while these are renamed


class Progress:
    """How far a cleaning is: a number that grows, which other threads may read."""

    steps = 0

    def count(self, size: int) -> None:  # noqa: ARG002 - for one that limits their rate
        """Counts bytes that were read or written; it may wait."""
        self.steps += 1


class Cleaner:
    """One cleaning of one log."""

    def __init__(self, directory: Path, job: Job, progress: Progress | None = None) -> None:
        """Reads the keys of the dirty section; raises OSError and CorruptMessage."""
        self.directory = directory
        self.job = job
        self._progress = Progress() if progress is None else progress
        self.segments = [
            Segment(directory, each.base_offset, Tail(each.end_offset, each.size))
            for each in job.sources
        ]
        for segment in self.segments:
            segment.known.is_closed = True
        self._aborted = _read_aborted(directory)
        self._old_horizon_ms = old_format_horizon(
            self._clean_until_ms(), job.delete_retention_ms, job.now_ms
        )
        self.keys = kernels.KeyMap(job.most_keys, job.by_time)
        self._due = DueTombstones(job.most_tombstones)
        self.latest_offset = self._read_keys()
        self._transactions = Transactions(self._aborted, job.sources[0].base_offset)
        self._horizons = NONE  # of the group that is cleaned now

    @property
    def end_offset(self) -> int:
        """The offset before which the log is clean once this cleaning is done."""
        return self.latest_offset + 1

    def _read_keys(self) -> int:
        """Collects the keys of the dirty section; returns the last offset that was read."""
        job = self.job
        latest = job.upper_offset - 1
        transactions, times = Transactions(self._aborted, job.first_dirty_offset), None
        if job.by_time:
            times = ComparedTimes(job)
            self._read_clean_section(times)
        for segment in self.segments:
            if segment.tail.end_offset <= job.first_dirty_offset:
                continue
            full_at = self._read_keys_of(segment, transactions, times)
            if full_at is not None:
                latest = full_at - 1
                self._due.keep_all()  # not all that follows a tombstone has been read
                break
        if job.by_time:
            self._compare_with_clean_section()
            self._read_waiting()
        return latest

    def _walk(self, segment: Segment) -> Iterator[Found]:
        for found in segment.walk():
            self._progress.count(found.batch.size)
            yield found

    def _read_keys_of(
        self, segment: Segment, transactions: Transactions, times: ComparedTimes | None
    ) -> int | None:
        first_offset, compared, keep_old = self.job.first_dirty_offset, Compared(), True
        if times is not None:
            times.enter(segment)
            keep_old = self._keeps_old_tombstones(segment)
        for found in self._walk(segment):
            batch = found.batch
            if batch.is_control:
                transactions.is_marker_idle(found.buffer, batch)
            elif batch.last_offset >= first_offset and not transactions.is_aborted(batch):
                verify(found.buffer, batch)
                if times is not None:
                    compared = times.of(batch)
                full_at = survivors.note(self.keys, found.buffer, batch, first_offset, *compared)
                if full_at is not None:
                    return full_at
                if self._due:
                    self._due.follow(found)
                if times is not None and self._is_due(batch, keep_old_tombstones=keep_old):
                    self._due.note(found)
        return None

    def _clean_segments(self) -> Iterator[Segment]:
        first_offset = self.job.first_dirty_offset
        return (each for each in self.segments if each.base_offset < first_offset)

    def _read_clean_section(self, times: ComparedTimes) -> None:
        """Lets `times` begin at the first offset of the log, and collects the due tombstones."""
        for segment in self._clean_segments():
            times.enter(segment)
            keep_old = self._keeps_old_tombstones(segment)
            for found in self._walk(segment):
                batch = found.batch
                if batch.last_offset >= self.job.first_dirty_offset:
                    break
                if batch.is_control:
                    continue
                times.of(batch)
                if self._is_due(batch, keep_old_tombstones=keep_old):
                    verify(found.buffer, batch)
                    self._due.note(found)

    def _compare_with_clean_section(self) -> None:
        """Lets records of the clean section win if their time is newer than in the dirty one."""
        job, times = self.job, ComparedTimes(self.job)
        for segment in self._clean_segments():
            times.enter(segment)
            for found in self._walk(segment):
                batch = found.batch
                if batch.base_offset >= job.first_dirty_offset:
                    break
                if not batch.is_control:
                    survivors.update_by_time(
                        self.keys, found.buffer, batch, job.log_start_offset, *times.of(batch)
                    )

    def _read_waiting(self) -> None:
        """Finds the due tombstones that are followed by a record which cannot be cleaned yet.

        If more waits than this cleaning reads anyway, and fits into a segment, they all stay.
        """
        job = self.job
        if not self._due:
            return
        room = sum(each.size for each in job.sources) + job.segment_bytes
        if sum(each.size for each in job.waiting) > room:
            self._due.keep_all()
            return
        try:
            for base_offset, *tail in job.waiting:
                for found in self._walk(Segment(self.directory, base_offset, Tail(*tail))):
                    if not found.batch.is_control:
                        verify(found.buffer, found.batch)
                        self._due.follow(found)
        except (CorruptMessage, OSError):  # it may be truncated meanwhile; it is not cleaned here
            self._due.keep_all()

    def _clean_until_ms(self) -> int | None:
        """Returns the last append time of the clean section, None if there is none."""
        clean = [s for s in self.segments if s.base_offset < self.job.first_dirty_offset]
        return self._written_ms(clean[-1]) if clean else None

    def _written_ms(self, segment: Segment) -> int:
        """Returns what the last append time of a segment counts as.

        That is the moment of adoption where it is unknown.
        """
        last_time, last_offset = segment.append_times.last_time, segment.tail.end_offset - 1
        if last_time is None:
            return self.job.adoptions.time_of(last_offset)
        return judged(self.job.corrections, last_offset, last_time)

    # --- groups ----------------------------------------------------------------------------------

    def groups(self) -> list[list[Segment]]:
        """Splits the segments into runs that fit into one segment each, as Kafka does.

        A run also ends where the append clock was reset, because append times never decrease within
        a segment, and where a correction ends, because it then concerns whole segments.
        """
        groups: list[list[Segment]] = []
        wanted = [s for s in self.segments if s.base_offset < self.end_offset]
        last_time: int | None = None
        borders = {self.job.back_offset, *(each.end_offset for each in self.job.corrections)}
        taken = _Room(0, 0, 0, 0)
        for segment in wanted:
            self._progress.steps += 1
            times = segment.append_times
            goes_back = segment.base_offset in borders or exceeds(
                last_time, times.first_known_time if len(times) else None
            )
            own = _room_of(segment)
            together = _Room(*map(sum, zip(taken, own, strict=True)))
            if groups and not goes_back and self._fits(groups[-1][0], segment, together):
                groups[-1].append(segment)
                taken = together
            else:
                groups.append([segment])
                last_time, taken = None, own
            last_time = later(times.last_time, last_time)
        return groups

    def _fits(self, first: Segment, segment: Segment, together: _Room) -> bool:
        job = self.job
        return (
            together.segments <= _MOST_SEGMENTS
            and together.size <= job.segment_bytes
            and all(size <= job.index_bytes for size in together.indexes)
            and (
                not segment.tail.size
                or segment.tail.end_offset - 1 - first.base_offset <= MAX_RELATIVE_OFFSET
            )
        )

    # --- one group -------------------------------------------------------------------------------

    def clean(self, group: Sequence[Segment]) -> Cleaned:
        """Writes what stays of a group of segments into `.cleaned` files.

        Raises OSError, CorruptMessage.
        """
        job = self.job
        self._horizons = NONE
        target = CleanedSegment(
            self.directory,
            group[0].base_offset,
            job.index_interval_bytes,
            job.event_slack_ms,
            job.write_bytes,
            job.adoptions,
        )
        for segment in group:
            keep_old = self._keeps_old_tombstones(segment)
            target.enter(segment)
            for found in self._walk(segment):
                target.note_read(found.batch)
                survivor = self._survivor(found, keep_old_tombstones=keep_old)
                if survivor is not None:
                    target.put(survivor)
                    self._progress.count(len(survivor.data))
        cleaned = target.finish(self._transactions.take_named())
        return cleaned._replace(horizons=self._horizons)

    def _note_horizon(self, batch: Batch) -> None:
        """Notes the horizon of what stays; one that has come does not make another cleaning due."""
        horizon_ms = batch.delete_horizon_ms
        if batch.magic < 2:
            if self.job.is_old_due and batch.last_offset < self.job.first_dirty_offset:
                return
            noted = Horizons(old_formats_ms=self._new_horizon_ms)
        elif horizon_ms is None:
            noted = Horizons(self._new_horizon_ms)
        elif is_past_horizon(self._counted(horizon_ms), self.job.now_ms):
            return
        else:
            noted = Horizons(horizon_ms)
        self._horizons = self._horizons.with_(noted)

    def _survivor(self, found: Found, *, keep_old_tombstones: bool) -> Survivor | None:
        """Returns what stays of a batch, None if nothing does."""
        batch = found.batch
        verify(found.buffer, batch)
        if batch.is_control:
            idle = self._transactions.is_marker_idle(found.buffer, batch)
            horizon = batch.delete_horizon_ms
            due = idle and is_past_horizon(self._counted(horizon), self.job.now_ms)
            region, filtered = survivors.look_at_all(found.buffer, batch)
            if not filtered.kept:
                return self._empty_if_needed(found)
            if due and not self._is_needed(batch):
                return None
            if idle:
                self._note_horizon(batch)
            if idle and horizon is None:
                data = survivors.written(batch, region, filtered, self._new_horizon_ms)
                return Survivor.of(data, batch, filtered)
            return Survivor.copied(found, filtered)
        if self._transactions.is_aborted(batch):
            return self._empty_if_needed(found)
        keep = not self._is_due(batch, keep_old_tombstones=keep_old_tombstones)
        if self.job.by_time and not keep:
            keep = not self._due.may_go(found)
        region, filtered = survivors.filter_records(
            self.keys, found.buffer, batch, self.latest_offset, keep_tombstones=keep
        )
        if not filtered.kept:
            return self._empty_if_needed(found)
        needs_horizon = (
            batch.magic == 2 and filtered.has_tombstone and batch.delete_horizon_ms is None
        )
        if filtered.has_tombstone:
            self._note_horizon(batch)
        is_changed = needs_horizon or filtered.kept < len(filtered.mask)
        if not is_changed and is_readable_by_java(found.buffer, batch, len(region.data)):
            return Survivor.copied(found, filtered)
        horizon = self._new_horizon_ms if needs_horizon else None
        return Survivor.of(survivors.written(batch, region, filtered, horizon), batch, filtered)

    def _keeps_old_tombstones(self, segment: Segment) -> bool:
        """Returns whether the tombstones of formats 0 and 1 in a segment stay."""
        if self.job.is_old_due and segment.tail.end_offset <= self.job.first_dirty_offset:
            return False
        return keeps_old_tombstones(self._written_ms(segment), self._old_horizon_ms)

    def _is_due(self, batch: Batch, *, keep_old_tombstones: bool) -> bool:
        """Returns whether the time has come at which the tombstones of a data batch may go."""
        if batch.magic < 2:
            return not keep_old_tombstones
        return is_past_horizon(self._counted(batch.delete_horizon_ms), self.job.now_ms)

    @property
    def _new_horizon_ms(self) -> int:
        return delete_horizon(self.job.now_ms, self.job.delete_retention_ms)

    def _counted(self, horizon_ms: int | None) -> int | None:
        """Returns what a batch's delete horizon counts as."""
        return counted_horizon(horizon_ms, self.job.late_horizons, self.job.delete_retention_ms)

    def _empty_if_needed(self, found: Found) -> Survivor | None:
        """Keeps a batch without records if it is needed.

        No marker becomes such a batch: some clients wait for ever at a control batch without a record.
        """
        batch = found.batch
        if not self._is_needed(batch):
            return None
        return Survivor.empty(survivors.emptied(batch), batch)

    def _is_needed(self, batch: Batch) -> bool:
        """Returns whether a batch stays anyway: it has its producer's state, or is the log's end."""
        if batch.magic < 2:
            return False
        return batch.last_offset + 1 == self.job.upper_offset or self._is_last_of_producer(batch)

    def _is_last_of_producer(self, batch: Batch) -> bool:
        writer = self.job.writers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if writer is None:
            return False
        if writer.last_offset >= 0:
            return batch.last_offset == writer.last_offset
        return batch.is_control and batch.producer_epoch == writer.epoch


class _Room(NamedTuple):
    """The sizes in bytes of some segments' logs and of their two indexes."""

    segments: int
    size: int
    offset_index: int
    time_index: int

    @property
    def indexes(self) -> tuple[int, int]:
        """The sizes of the two indexes."""
        return self.offset_index, self.time_index


def _room_of(segment: Segment) -> _Room:
    """Returns the sizes of one segment, whose indexes are read if they are not in memory."""
    offsets, times = len(segment.index), len(segment.time_index)
    return _Room(
        1, segment.tail.size, offsets * OffsetIndex.entry_size, times * TimeIndex.entry_size
    )


def _read_aborted(directory: Path) -> list[transaction_index.Aborted]:
    """Reads every `.txnindex` of a log, also those of segments after the section to be cleaned."""
    found: list[transaction_index.Aborted] = []
    for path in sorted(directory.iterdir()):
        file = filenames.parse_segment_file(path.name)
        if file is not None and file.suffix == filenames.TXN_INDEX_SUFFIX:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found += transaction_index.parse(path.read_bytes())
    return found
