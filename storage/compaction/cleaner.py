"""Compacting sealed segments: `.cleaned` files beside them, of the records that stay (KIP-534).

Two walks over the log, as Kafka's LogCleaner does them. The first enters the keys of the dirty part, from
where the last cleaning ended; the second goes over all segments, clean and dirty, in groups that
fit into one, and writes for each group what is left of it. Nothing is renamed and no segment is changed
here: `replacing` does that. What is written is durable, names included, when `clean` returns it.

Offsets, times, formats, codecs, producers and epochs stay what they were, and the append time of every
batch that stays is in `.appendtimes`. A cleaned segment has the indexes that appending its batches would
have made.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.records import kernels, survivors
from protocol.records.batch import verify
from storage import filenames
from storage.compaction.cleaned_segment import CleanedSegment, Survivor
from storage.compaction.decided_transactions import Transactions
from storage.segment import transaction_index
from storage.segment.log_file import Tail
from storage.segment.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from storage.segment.segment import Segment
from storage.segment.time_index import TimeIndex
from storage.time.event_time import capped
from storage.time.timestamp import exceeds, is_due, later

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from protocol.records.layout import Batch
    from storage.compaction.cleaned_segment import Cleaned
    from storage.segment.log_file import Found

_SLOT_BYTES = 24  # of a key by offset; by time it is a third more, as in the compiled map
_SLOT_BYTES_BY_TIME = 32
_LEAST_KEYS = 1_000
_MOST_SEGMENTS = 64  # that become one: appends wait while they get other names


class Source(NamedTuple):
    """A segment as it was when the cleaning began."""

    base_offset: int
    end_offset: int
    size: int


class Writer(NamedTuple):
    """The last thing an idempotent producer wrote: its last data offset (-1: none), its epoch."""

    last_offset: int
    epoch: int


class Job(NamedTuple):
    """All that a cleaning needs to know; plain values, so that it may be done by another process."""

    sources: tuple[Source, ...]  # every segment that lies below the upper offset, in order
    first_dirty_offset: int
    upper_offset: int  # the end of what may be cleaned
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    by_time: bool
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    dedupe_bytes: int  # memory for keys
    load_factor: float
    write_bytes: int  # gathered before they are written
    event_slack_ms: int
    back_offset: int  # where append times were last let go back
    writers: Mapping[int, Writer]  # by producer id

    def packed(self) -> dict[str, Any]:
        """Make JSON of it."""
        return {**self._asdict(), "writers": [[p, *w] for p, w in self.writers.items()]}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Job:
        """Read what `packed` made."""
        fields = dict(packed)
        fields["sources"] = tuple(Source(*each) for each in fields["sources"])
        fields["writers"] = {p: Writer(*rest) for p, *rest in fields["writers"]}
        return cls(**fields)

    @property
    def most_keys(self) -> int:
        """How many keys fit into the memory for them."""
        slot = _SLOT_BYTES_BY_TIME if self.by_time else _SLOT_BYTES
        return max(int(self.dedupe_bytes / slot * self.load_factor), _LEAST_KEYS)


class Progress:
    """How far a cleaning has come: a number that grows, for whoever looks from another thread."""

    steps = 0


class Cleaner:
    """One cleaning of one log."""

    def __init__(self, directory: Path, job: Job, progress: Progress | None = None) -> None:
        """Read the keys of the dirty part; raises OSError and CorruptMessage."""
        self.directory = directory
        self.job = job
        self._progress = Progress() if progress is None else progress
        self.segments = [
            Segment(directory, each.base_offset, Tail(each.end_offset, each.size))
            for each in job.sources
        ]
        self._aborted = _read_aborted(directory)
        self.keys = kernels.KeyMap(job.most_keys, job.by_time)
        self.latest_offset = self._read_keys()
        self._transactions = Transactions(self._aborted, job.sources[0].base_offset)
        self._old_horizon_ms = self._horizon_of_old_formats()
        # By time a tombstone may be newer than what comes behind the keys for which there was memory.
        self._is_weighed_in_part = job.by_time and self.end_offset < job.upper_offset

    @property
    def end_offset(self) -> int:
        """Before it all will be clean."""
        return self.latest_offset + 1

    def _read_keys(self) -> int:
        """Enter the keys of the dirty part; return the last offset that was looked at."""
        job = self.job
        latest = job.upper_offset - 1
        transactions = Transactions(self._aborted, job.first_dirty_offset)
        for segment in self.segments:
            if segment.tail.end_offset <= job.first_dirty_offset:
                continue
            full_at = self._read_keys_of(segment, transactions)
            if full_at is not None:
                latest = full_at - 1
                break
        if job.by_time:
            self._weigh_clean_part()
        return latest

    def _walk(self, segment: Segment) -> Iterator[Found]:
        for found in segment.walk():
            self._progress.steps += 1
            yield found

    def _read_keys_of(self, segment: Segment, transactions: Transactions) -> int | None:
        first_offset = self.job.first_dirty_offset
        for found in self._walk(segment):
            batch = found.batch
            if batch.is_control:
                transactions.is_marker_idle(found.buffer, batch)
            elif batch.last_offset >= first_offset and not transactions.is_aborted(batch):
                verify(found.buffer, batch)
                full_at = survivors.note(self.keys, found.buffer, batch, first_offset)
                if full_at is not None:
                    return full_at
        return None

    def _weigh_clean_part(self) -> None:
        """Let what is clean win where it is newer: by time the last one written need not."""
        job = self.job
        for segment in self.segments:
            if segment.base_offset >= job.first_dirty_offset:
                break
            for found in self._walk(segment):
                if found.batch.base_offset >= job.first_dirty_offset:
                    break
                if not found.batch.is_control:
                    survivors.weigh(self.keys, found.buffer, found.batch, job.log_start_offset)

    def _horizon_of_old_formats(self) -> int | None:
        """Up to which segments' age tombstones of formats 0 and 1 go; None: none goes."""
        clean = [s for s in self.segments if s.base_offset < self.job.first_dirty_offset]
        if not clean:
            return None
        return _written_ms(clean[-1]) - self.job.delete_retention_ms

    # --- groups ----------------------------------------------------------------------------------

    def groups(self) -> list[list[Segment]]:
        """Part the segments into runs that fit into one, as Kafka does, each looked at once.

        Append times never go back within a segment, so a run ends where an operator let them.
        """
        groups: list[list[Segment]] = []
        wanted = [s for s in self.segments if s.base_offset < self.end_offset]
        last_time: int | None = None
        taken = _Room(0, 0, 0, 0)
        for segment in wanted:
            self._progress.steps += 1
            times = segment.append_times
            goes_back = segment.base_offset == self.job.back_offset or exceeds(
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
        """Write what is left of some segments into `.cleaned` files; raises OSError, CorruptMessage."""
        job = self.job
        target = CleanedSegment(
            self.directory,
            group[0].base_offset,
            job.index_interval_bytes,
            job.event_slack_ms,
            job.write_bytes,
        )
        for segment in group:
            keep_old = self._old_horizon_ms is None or exceeds(
                _written_ms(segment), self._old_horizon_ms
            )
            target.enter(segment, _modified_ms(segment))
            for found in self._walk(segment):
                target.note_read(found.batch)
                survivor = self._survivor(found, keep_old_tombstones=keep_old)
                if survivor is not None:
                    target.put(survivor)
        return target.finish(self._transactions.take_named())

    def _survivor(self, found: Found, *, keep_old_tombstones: bool) -> Survivor | None:
        """Return what is left of a batch, None where nothing is."""
        batch, now_ms = found.batch, self.job.now_ms
        verify(found.buffer, batch)
        if batch.is_control:
            idle = self._transactions.is_marker_idle(found.buffer, batch)
            horizon = batch.delete_horizon_ms
            if idle and horizon is not None and is_due(horizon, now_ms):
                return self._empty_if_needed(found)
            region, sifted = survivors.look_at_all(found.buffer, batch)
            if not sifted.kept:
                return self._empty_if_needed(found)
            if idle and horizon is None:
                data = survivors.written(batch, region, sifted, self._new_horizon_ms)
                return Survivor.of(data, batch, sifted)
            return Survivor.copied(found, sifted)
        if self._transactions.is_aborted(batch):
            return self._empty_if_needed(found)
        keep = keep_old_tombstones if batch.magic < 2 else _keeps_tombstones(batch, now_ms)
        keep = keep or self._is_weighed_in_part
        region, sifted = survivors.sift(
            self.keys, found.buffer, batch, self.latest_offset, keep_tombstones=keep
        )
        if not sifted.kept:
            return self._empty_if_needed(found)
        needs_horizon = (
            batch.magic == 2 and sifted.has_tombstone and batch.delete_horizon_ms is None
        )
        if sifted.kept == len(sifted.mask) and not needs_horizon:
            return Survivor.copied(found, sifted)
        horizon = self._new_horizon_ms if needs_horizon else None
        return Survivor.of(survivors.written(batch, region, sifted, horizon), batch, sifted)

    @property
    def _new_horizon_ms(self) -> int:
        return capped(self.job.now_ms, self.job.delete_retention_ms)

    def _empty_if_needed(self, found: Found) -> Survivor | None:
        """Keep a batch without records where its producer, or the log's end, is known by it."""
        batch = found.batch
        if batch.magic < 2:
            return None
        if batch.last_offset + 1 != self.job.upper_offset and not self._is_last_of_producer(batch):
            return None
        return Survivor.empty(survivors.emptied(batch), batch)

    def _is_last_of_producer(self, batch: Batch) -> bool:
        writer = self.job.writers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if writer is None:
            return False
        if writer.last_offset >= 0:
            return batch.last_offset == writer.last_offset
        return batch.is_control and batch.producer_epoch == writer.epoch


class _Room(NamedTuple):
    """The bytes of some segments' logs and of both their indexes."""

    segments: int
    size: int
    offset_index: int
    time_index: int

    @property
    def indexes(self) -> tuple[int, int]:
        """The bytes of either index."""
        return self.offset_index, self.time_index


def _room_of(segment: Segment) -> _Room:
    """Return what a segment takes; its indexes are read for it."""
    offsets, times = len(segment.index), len(segment.time_index)
    return _Room(
        1, segment.tail.size, offsets * OffsetIndex.entry_size, times * TimeIndex.entry_size
    )


def _keeps_tombstones(batch: Batch, now_ms: int) -> bool:
    horizon = batch.delete_horizon_ms
    return horizon is None or not is_due(horizon, now_ms)


def _written_ms(segment: Segment) -> int:
    """Return when the last batch of a segment was appended, or at the latest."""
    last_time = segment.append_times.last_time
    return _modified_ms(segment) if last_time is None else last_time


def _modified_ms(segment: Segment) -> int:
    return segment.path.stat().st_mtime_ns // 1_000_000


def _read_aborted(directory: Path) -> list[transaction_index.Aborted]:
    """Read every `.txnindex` of a log, those of segments behind what is cleaned too."""
    found: list[transaction_index.Aborted] = []
    for path in sorted(directory.iterdir()):
        file = filenames.parse_segment_file(path.name)
        if file is not None and file.suffix == filenames.TXN_INDEX_SUFFIX:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found += transaction_index.parse(path.read_bytes())
    return found
