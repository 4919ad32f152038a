"""A log of which compaction may take records out, while it is appended to and read.

A cleaning is done elsewhere, on files of its own (`cleaner`); the log says what there is to clean, keeps one
cleaning apart from another, and takes finished segments in. For that it holds its locks no longer than
the names take. `swaps` counts them, twice each, and who has read meanwhile reads again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import BrokerError, KafkaStorageError
from storage import files
from storage.compaction import plan, swap
from storage.compaction.cleaner import Job, Source, Writer
from storage.compaction.explain import Compacting
from storage.log.durable_log import DurableLog
from storage.log.producers.recovered_producers import load_producers
from storage.log.retention import deletion
from storage.segment.log_file import Tail
from storage.segment.segment import Segment
from storage.segment.segment_line import SegmentLine
from storage.time.retention import expired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from config.topic import TopicConfig
    from storage.compaction.cleaned_segment import Cleaned
    from storage.compaction.explain import CompactionBlocker
    from storage.compaction.plan import DirtySection
    from storage.log.producers.producer_state import Producers
    from storage.time.segment_times import SegmentTimes

_log = logging.getLogger("tidelog.storage")

DEDUPE_BYTES = 128 << 20  # Kafka's default memory for keys
LOAD_FACTOR = 0.9
WRITE_BYTES = 512 << 10


class Compaction(NamedTuple):
    """What has become of a log's last cleaning."""

    ended_ms: int
    bytes_read: int
    bytes_written: int
    error: str | None  # why it failed, if it did


class CompactedLog(DurableLog):
    """The part of a partition that knows of compaction."""

    _is_cleaning = False
    _cleaning: tuple[Segment, ...] = ()  # what the one under way was told of
    last_compaction: Compaction | None = None

    @property
    def first_dirty_offset(self) -> int:
        """From here on the log is dirty."""
        return plan.first_dirty(self.cleaned_offset, self.log_start_offset, self.log_end_offset)

    def dirty_section(self, now_ms: int, config: TopicConfig | None = None) -> DirtySection:
        """Tell what there is to clean, and whether it is due; by other settings where they are given.

        Meant for a thread: what is not known of segments' times may have to be read. Raises OSError.
        """
        return self._judge_dirty_section(
            self._segments, now_ms, self.config if config is None else config
        )

    def _judge_dirty_section(
        self, segments: tuple[Segment, ...], now_ms: int, config: TopicConfig
    ) -> DirtySection:
        parts = [
            plan.Part(s.tail.end_offset, s.tail.size, functools.partial(_times_of, s))
            for s in segments[:-1]
        ]
        rules = plan.rules_of(config)
        limit = self.last_stable_offset
        return plan.judge(parts, self.first_dirty_offset, limit, rules, now_ms)

    def compacting(
        self,
        segments: tuple[Segment, ...],
        now_ms: int,
        config: TopicConfig,
        blocker: CompactionBlocker | None = None,
    ) -> Compacting | None:
        """Say what compaction makes of the log by these settings; None where it does nothing."""
        if not config.is_compacted:
            return None
        dirty_section = self._judge_dirty_section(segments, now_ms, config)
        if blocker is not None:
            dirty_section = dirty_section._replace(held_by=blocker.held_by)
        rules = plan.rules_of(config)
        return Compacting(dirty_section, rules, config.compaction_strategy, blocker)

    def begin_cleaning(
        self,
        now_ms: int,
        *,
        asked: bool = False,
        durable_offset: int | None = None,
        dedupe_bytes: int = DEDUPE_BYTES,
        load_factor: float = LOAD_FACTOR,
        write_bytes: int = WRITE_BYTES,
    ) -> Job | None:
        """Say what is to be cleaned now; None where nothing is, or a cleaning is under way.

        `asked`: as soon as anything may be cleaned. Only what lies before `durable_offset`, or the
        recovery point: a compacted segment is not checked for holes after a crash. One that has begun
        ends with `end_cleaning`. Raises KafkaStorageError and OSError.
        """
        self.check_online()
        config, segments = self.config, self._segments
        if self._is_cleaning or not config.is_compacted:
            return None
        dirty_section = self._judge_dirty_section(segments, now_ms, config)
        if not (dirty_section.is_due or (asked and dirty_section.held_by == plan.RATIO)):
            return None
        durable = self.recovery_point if durable_offset is None else durable_offset
        wanted = tuple(
            s
            for s in segments[:-1]
            if s.tail.end_offset <= min(dirty_section.upper_offset, durable, self.recovery_point)
        )
        if not wanted or wanted[-1].tail.end_offset <= dirty_section.first_dirty_offset:
            return None
        deletion.learn(wanted)  # the largest event time outlives what told it
        for segment in wanted:
            segment.append_times.close()  # looked at: what is doubted of them the file says now
        writers = self._last_writers(now_ms)
        with self._append_lock:
            if self._is_stopped or self._is_cleaning or self._segments[: len(wanted)] != wanted:
                return None
            self._is_cleaning, self._cleaning = True, wanted
        self._discard_leftovers()
        return Job(
            sources=tuple(Source(s.base_offset, *s.tail) for s in wanted),
            first_dirty_offset=dirty_section.first_dirty_offset,
            upper_offset=wanted[-1].tail.end_offset,
            log_start_offset=self.log_start_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            by_time=config.compaction_strategy == plan.TIMESTAMP,
            segment_bytes=config.segment_bytes,
            index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_bytes=dedupe_bytes,
            load_factor=load_factor,
            write_bytes=write_bytes,
            event_slack_ms=self._event_slack_ms,
            back_offset=self._back_offset,
            writers=writers,
        )

    def _discard_leftovers(self) -> None:
        """Remove what earlier cleanings left; where that fails this one is over, and it raises."""
        try:
            with self._flush_lock:
                self._check_usable()
                swap.discard_all(self.directory)  # nobody's, or what could not be removed
        except (BrokerError, OSError):
            self.end_cleaning(None)
            raise

    def _last_writers(self, now_ms: int) -> dict[int, Writer]:
        """Return the last write of each producer that is remembered; raises OSError.

        Where nobody asked for them yet they are read for this alone: an append may just be about to.
        """
        with self._append_lock:
            known = self._producers
            if known is not None:
                return self._writers_of(known, now_ms)
            segments = self._segments
        read = load_producers(
            self.directory,
            segments,
            self._producer_id_expiration_ms,
            now_ms,
            log_start_offset=self.log_start_offset,
        )
        return self._writers_of(read, now_ms)

    def _writers_of(self, producers: Producers, now_ms: int) -> dict[int, Writer]:
        idle_ms = self._producer_id_expiration_ms
        return {
            each.producer_id: Writer(
                each.batches[-1].last_offset if each.batches else -1, each.epoch
            )
            for each in producers
            if not expired(each.last_append_time_ms, now_ms, idle_ms)
        }

    def end_cleaning(
        self, first_dirty_offset: int | None, compaction: Compaction | None = None
    ) -> None:
        """Have the cleaning under way ended; up to where it came, None where it failed."""
        with self._append_lock:
            self._is_cleaning, self._cleaning = False, ()
            if first_dirty_offset is not None:
                self.cleaned_offset = first_dirty_offset
            if compaction is not None:
                self.last_compaction = compaction

    def take_in(self, cleaned: Cleaned, now_ms: int) -> bool:
        """Put a cleaned segment in the place of those it was made from; False if they are gone.

        It is durable then, and their files are removed file.delete.delay.ms later. Raises
        KafkaStorageError; when the names cannot be changed half way the log is offline.
        """
        with self._flush_lock:
            self._check_usable()
            sources = self._sources_of(cleaned)
            if not sources:
                self._discard(cleaned)
                return False
            try:
                with self._append_lock:
                    self._largest_event.keep(self.max_event_time)
                    self._replacing = frozenset(s.base_offset for s in sources)
                # No line of partition.times may be taken for one about what comes.
                self._save_times(self._covered_times(), durable=True)
                swap.complete(self.directory, cleaned.base_offset)
            except OSError as error:
                self._replacing = frozenset()
                if not isinstance(error, files.SyncError):
                    self._discard(cleaned)
                raise self._storage_error("a compacted segment is not kept", error) from error
            self._swap(cleaned, sources, now_ms)
            try:
                self._sync(functools.partial(files.sync, self.directory))
                self._pending_deletes.remove_due(now_ms)
                self._save_times(self._covered_times(), durable=True)
            except OSError as error:
                raise self._storage_error("the log's times cannot be kept", error) from error
        swap.remove_snapshots(sources)
        return True

    def discard_cleaned(self) -> None:
        """Remove what a cleaning that was given up has written, as far as the disk lets us.

        What it does not is in the way of the next one. Of a log that is offline a part may have no other
        name: the next start ends that.
        """
        with self._flush_lock:
            if not self.is_deleted and self.offline is None:
                with contextlib.suppress(OSError):
                    swap.discard_all(self.directory)

    def _discard(self, cleaned: Cleaned) -> None:
        with contextlib.suppress(OSError):
            swap.discard(self.directory, cleaned.base_offset)

    def _sources_of(self, cleaned: Cleaned) -> tuple[Segment, ...]:
        """Return the segments a cleaned one was made from, where they are all there still."""
        segments = () if self._is_stopped else self._segments
        for number, segment in enumerate(segments):
            if segment.base_offset == cleaned.base_offset:
                sources = segments[number : number + cleaned.sources]
                if (
                    set(sources) <= set(self._cleaning)
                    and len(sources) == cleaned.sources
                    and sources[-1].tail.end_offset == cleaned.end_offset
                ):
                    return sources
        return ()

    def _swap(self, cleaned: Cleaned, sources: tuple[Segment, ...], now_ms: int) -> None:
        """Change the names, and which segments there are, while nobody reads by name.

        In two parts: neither appends nor reads wait while the disk is to know of the first, and the old
        segments serve on. Raises KafkaStorageError, and then the log is offline.
        """
        segment = self._segment_of(cleaned)
        with self._append_lock, self._half_way(), self._alone_with_names():
            away = swap.mark_logs_deleted(sources)
        if len(sources) > 1:
            with self._half_way():
                self._sync(functools.partial(files.sync, self.directory))
        with self._append_lock, self._half_way(), self._alone_with_names():
            away += swap.mark_companions_deleted(sources)
            swap.put_in_place(self.directory, cleaned.base_offset)
            first = self._segments.index(sources[0])
            self._segments = (
                *self._segments[:first],
                segment,
                *self._segments[first + len(sources) :],
            )
            self._cleaning = tuple(s for s in self._cleaning if s not in sources)
            self._replacing = frozenset()
        self._pending_deletes.add(away, now_ms + self.config.file_delete_delay_ms)

    def _segment_of(self, cleaned: Cleaned) -> Segment:
        """Describe a cleaned segment as it is once it has its name."""
        segment = Segment(
            self.directory, cleaned.base_offset, Tail(cleaned.end_offset, cleaned.size)
        )
        segment.event_slack_ms = self._event_slack_ms
        line = SegmentLine(
            cleaned.base_offset,
            cleaned.end_offset,
            cleaned.size,
            cleaned.times,
            cleaned.index_entries,
            cleaned.time_index_entries,
            cleaned.is_true,
        )
        segment.adopt(line, is_true=cleaned.is_true, covered_offset=cleaned.end_offset)
        return segment

    @contextlib.contextmanager
    def _half_way(self) -> Iterator[None]:
        """Take the log offline where the disk refuses the next name: the next start ends what was begun."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            self._go_offline(f"compaction was interrupted: {reason}")
            raise KafkaStorageError(
                f"{self.topic}-{self.index}: compaction was interrupted: {reason}"
            ) from error

    @contextlib.contextmanager
    def _alone_with_names(self) -> Iterator[None]:
        self.swaps += 1
        try:
            yield
        finally:
            self.swaps += 1


def _times_of(segment: Segment) -> SegmentTimes:
    return segment.times
