"""Compaction of a log during appends and reads.

The cleaning itself writes to files of its own (`cleaner`). The compactor describes what there is to
clean, allows one cleaning at a time, and replaces segments by the cleaned ones. It holds locks only
for the renames. Readers that hold the old version continue to read the old segments.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import BrokerError
from tidelog.storage import files
from tidelog.storage.compaction import horizons, plan, swap
from tidelog.storage.compaction.explain import Compacting
from tidelog.storage.compaction.horizons import NONE, Horizons
from tidelog.storage.compaction.job import Job, LastWrite, SourceSegment
from tidelog.storage.log.failures import half_way, storage_error
from tidelog.storage.log.retention import deletion
from tidelog.storage.log.times import judging
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.segment_line import SegmentLine
from tidelog.storage.time.retention import expired
from tidelog.storage.time.timestamp import earlier, later
from tidelog.storage.time.tombstones import is_past_horizon

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.compaction.cleaned_segment import Cleaned
    from tidelog.storage.compaction.explain import CompactionBlocker
    from tidelog.storage.compaction.plan import DirtySection
    from tidelog.storage.log.flusher import Flusher
    from tidelog.storage.log.producers.producer_state import Producers
    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.version import Version
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.time.corrections import Correction

_log = logging.getLogger("tidelog.storage")

DEDUPE_BYTES = 128 << 20  # Kafka's default memory for the map of keys
LOAD_FACTOR = 0.9
WRITE_BYTES = 512 << 10


class Compaction(NamedTuple):
    """The result of a log's last cleaning."""

    ended_ms: int
    bytes_read: int
    bytes_written: int
    error: str | None  # why it failed; None if it did not


class Compactor:
    """Compacts one log."""

    __slots__ = (
        "_cleaning",
        "_flusher",
        "_found_horizons",
        "_horizons",
        "_is_cleaning",
        "_is_overtaken",
        "_state",
        "last_compaction",
    )

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._is_cleaning = False
        self._is_overtaken = False  # by a truncation
        self._cleaning: tuple[Segment, ...] = ()  # the source segments of the current cleaning
        self._horizons: Horizons | None = None  # of the clean section; None: not read yet
        self._found_horizons = NONE  # of what the current cleaning has written
        self.last_compaction: Compaction | None = None

    @property
    def first_dirty_offset(self) -> int:
        """The offset from which on the log is dirty."""
        state = self._state
        return plan.first_dirty(
            state.cleaning.cleaned_offset, state.version.log_start_offset, state.ends.log_end_offset
        )

    def dirty_section(self, now_ms: int, config: TopicConfig | None = None) -> DirtySection:
        """Returns what there is to clean, and whether it is due; `config` replaces the settings.

        Call it in a thread: times of segments that are not known are read, and once after a start the
        clean section, for its delete horizons. Raises OSError and CorruptMessage.
        """
        state = self._state
        with state.hold() as version:
            if self._horizons is None:
                keep_ms = state.rules.config.delete_retention_ms
                self._horizons = horizons.read(self._clean_batches(version), now_ms, keep_ms)
            return self._judge_dirty_section(
                version.segments, now_ms, state.rules.config if config is None else config
            )

    def _clean_batches(self, version: Version) -> Iterator[Found]:
        """Yields the batches of the clean section."""
        for segment in version.segments[:-1]:
            if segment.tail.end_offset > self.first_dirty_offset:
                break
            yield from Segment(self._state.directory, segment.base_offset, segment.tail).walk()

    def _counted_horizons(self) -> Horizons:
        """Returns what the horizons of the clean section count as."""
        state = self._state
        late, keep_ms = state.timing.steps.late_horizons, state.rules.config.delete_retention_ms
        return (self._horizons or NONE).counted(late, keep_ms)

    def _judge_dirty_section(
        self, segments: tuple[Segment, ...], now_ms: int, config: TopicConfig
    ) -> DirtySection:
        parts = [
            plan.SealedSegment(
                s.tail.end_offset,
                s.tail.size,
                functools.partial(judging.judged_times_of, self._state, s),
            )
            for s in segments[:-1]
        ]
        rules = plan.rules_of(config)
        limit = self._limit()
        horizon_ms = self._counted_horizons().first_ms
        return plan.judge(parts, self.first_dirty_offset, limit, rules, now_ms, horizon_ms)

    def _limit(self) -> int:
        """Returns the offset below which may be compacted; a follower does not overtake its leader.

        A record that a follower had dropped, and its leader had not, would be lost if it was elected.
        """
        state = self._state
        if not state.is_follower and not state.awaits_role:
            return state.ends.last_stable_offset
        return min(state.ends.last_stable_offset, state.leadership.leader_cleaned_offset or 0)

    def compacting(
        self,
        segments: tuple[Segment, ...],
        now_ms: int,
        config: TopicConfig,
        blocker: CompactionBlocker | None = None,
    ) -> Compacting | None:
        """Returns what compaction would do to the log with these settings; None if nothing."""
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
        corrections: Sequence[Correction] | None = None,
        asked: bool = False,
        durable_offset: int | None = None,
        dedupe_bytes: int = DEDUPE_BYTES,
        load_factor: float = LOAD_FACTOR,
        write_bytes: int = WRITE_BYTES,
    ) -> Job | None:
        """Returns what is to be cleaned now; None if nothing is, or a cleaning is in progress.

        Begins none if the log has other `corrections` than it had before `now_ms` was asked for. `asked`
        cleans as soon as anything may be cleaned. Only the log before `durable_offset`, or
        the recovery point, is cleaned: recovery takes no gap in it for one of a power loss.
        Every cleaning that begins ends with `end_cleaning`. Raises KafkaStorageError and OSError.
        """
        state = self._state
        state.check_online()
        config = state.rules.config
        if self._is_cleaning or not config.is_compacted:
            return None
        producers = state.read_producers()  # before the last stable offset is looked at
        with state.hold() as version:
            dirty_section = self._judge_dirty_section(version.segments, now_ms, config)
            if not (dirty_section.is_due or (asked and dirty_section.held_by == plan.RATIO)):
                return None
            durable = state.durability.recovery_point if durable_offset is None else durable_offset
            upper_offset = min(dirty_section.upper_offset, durable, state.durability.recovery_point)
            wanted = tuple(s for s in version.segments[:-1] if s.tail.end_offset <= upper_offset)
            reached_offset = wanted[-1].tail.end_offset if wanted else 0
            first_dirty_offset = dirty_section.first_dirty_offset
            has_dirt = dirty_section.dirty_bytes > 0  # else the clean section is due alone
            if not wanted or reached_offset < first_dirty_offset:
                return None
            if has_dirt and reached_offset == first_dirty_offset:
                return None
            deletion.learn(wanted)  # the largest event time is kept after its segment is gone
            _finish_append_times(wanted)
            by_time = config.compaction_strategy == plan.TIMESTAMP
            with state.append_lock:
                writers = self._writers_of(producers, now_ms)
                behind = state.version.segments[len(wanted) :] if by_time else ()
                waiting = tuple(SourceSegment(s.base_offset, *s.tail) for s in behind)
        if not self._claim(wanted, corrections):
            return None
        self._discard_leftovers()
        return Job(
            sources=tuple(SourceSegment(s.base_offset, *s.tail) for s in wanted),
            first_dirty_offset=dirty_section.first_dirty_offset,
            upper_offset=wanted[-1].tail.end_offset,
            log_start_offset=state.version.log_start_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            by_time=by_time,
            segment_bytes=config.segment_bytes,
            index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_bytes=dedupe_bytes,
            load_factor=load_factor,
            write_bytes=write_bytes,
            event_slack_ms=state.rules.event_slack_ms,
            back_offset=state.timing.back_offset,
            writers=writers,
            adoptions=state.timing.adoptions,
            corrections=state.timing.corrections,
            late_horizons=state.timing.steps.late_horizons,
            is_old_due=is_past_horizon(self._counted_horizons().old_formats_ms, now_ms),
            waiting=waiting,
        )

    def _claim(self, wanted: tuple[Segment, ...], corrections: Sequence[Correction] | None) -> bool:
        """Begins cleaning these segments, if they are still the oldest and none is in progress."""
        state = self._state
        with state.append_lock:
            if (
                state.is_stopped
                or (corrections is not None and corrections is not state.timing.corrections)
                or self._is_cleaning
                or state.version.segments[: len(wanted)] != wanted
            ):
                return False
            self._is_cleaning, self._cleaning, self._is_overtaken = True, wanted, False
            self._found_horizons = NONE
        return True

    def _discard_leftovers(self) -> None:
        """Removes leftovers of earlier cleanings; if that fails, ends this one and raises."""
        try:
            with self._state.flush_lock:
                self._state.check_usable()
                swap.discard_all(self._state.directory)  # of lost cleanings, failed removals
        except (BrokerError, OSError):
            self.end_cleaning(None)
            raise

    def _writers_of(self, producers: Producers, now_ms: int) -> dict[int, LastWrite]:
        """Returns the last write of each known producer; needs the append lock."""
        idle_ms = self._state.producer_id_expiration_ms
        return {
            each.producer_id: LastWrite(
                each.batches[-1].last_offset if each.batches else -1, each.epoch
            )
            for each in producers
            if each.has_transaction or not expired(each.last_append_time_ms, now_ms, idle_ms)
        }

    def overtake(self) -> None:
        """Makes the current cleaning fail, for a truncation; needs the append lock."""
        self._cleaning, self._is_overtaken = (), True

    def end_cleaning(
        self, first_dirty_offset: int | None, compaction: Compaction | None = None
    ) -> None:
        """Ends the current cleaning; the offset is how far it came, None if it failed."""
        with self._state.append_lock:
            self._is_cleaning, self._cleaning = False, ()
            if first_dirty_offset is not None and not self._is_overtaken:
                before = self._state.cleaning
                self._state.cleaning = before._replace(cleaned_offset=first_dirty_offset)
                self._horizons = self._found_horizons
            if compaction is not None:
                self.last_compaction = compaction

    def take_in(self, cleaned: Cleaned, now_ms: int) -> bool:
        """Replaces segments by the cleaned one; returns False if they are gone.

        The cleaned segment is then durable. The old files are removed file.delete.delay.ms later,
        once no reader holds them. Raises KafkaStorageError. If a rename fails half way, the log is
        offline.
        """
        state = self._state
        with state.flush_lock:
            state.check_usable()
            sources = self._sources_of(cleaned)
            if not sources:
                self._discard(cleaned)
                return False
            try:
                with state.append_lock:
                    state.largest_event.keep(state.max_event_time)
                    replacing = frozenset(s.base_offset for s in sources)
                    state.cleaning = state.cleaning._replace(replacing=replacing)
                    cleaning_end = self._cleaning[-1].tail.end_offset
                    state.gaps_end_offset = max(state.gaps_end_offset, cleaning_end)
                # No line of partition.times may be taken for one of the new segment, and recovery
                # must know where the log may have gaps, and a follower where what fills them is.
                state.saved_times.save_covered(durable=True)
                swap.complete(state.directory, cleaned.base_offset)
            except OSError as error:
                with state.append_lock:
                    state.cleaning = state.cleaning._replace(replacing=frozenset())
                if not isinstance(error, files.SyncError):
                    self._discard(cleaned)
                raise storage_error(state, "a compacted segment is not kept", error) from error
            self._swap(cleaned, sources, now_ms)
            self._found_horizons = self._found_horizons.with_(cleaned.horizons)
            try:
                self._flusher.sync(functools.partial(files.sync, state.directory))
                state.pending_deletes.remove_due(now_ms, state.oldest_held())
                state.saved_times.save_covered(durable=True)
            except OSError as error:
                raise storage_error(state, "the log's times cannot be kept", error) from error
        swap.remove_snapshots(sources)
        return True

    def discard_cleaned(self) -> None:
        """Removes the files of an abandoned cleaning, as far as the disk allows.

        Files that remain prevent the next cleaning. In a log that is offline, a part of the data
        may have no other name; the next start completes the replacement.
        """
        with self._state.flush_lock:
            if not self._state.is_deleted and self._state.offline is None:
                with contextlib.suppress(OSError):
                    swap.discard_all(self._state.directory)

    def _discard(self, cleaned: Cleaned) -> None:
        with contextlib.suppress(OSError):
            swap.discard(self._state.directory, cleaned.base_offset)

    def _sources_of(self, cleaned: Cleaned) -> tuple[Segment, ...]:
        """Returns the segments that a cleaned one replaces.

        Empty if one of them is gone or the log is stopped.
        """
        segments = () if self._state.is_stopped else self._state.version.segments
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
        """Renames the files, then replaces the version.

        This has two parts, so that neither appends nor reads wait while the first is made durable.
        The old segments are readable under their new names. Raises KafkaStorageError; then the log
        is offline.
        """
        state, segment = self._state, self._segment_of(cleaned, sources)
        with state.append_lock, half_way(state, "compaction"):
            away = swap.mark_logs_deleted(sources)
        if len(sources) > 1:
            with half_way(state, "compaction"):
                self._flusher.sync(functools.partial(files.sync, state.directory))
        with state.append_lock, half_way(state, "compaction"):
            away += swap.mark_companions_deleted(sources)
            swap.put_in_place(state.directory, cleaned.base_offset)
            before = state.version.segments
            first = before.index(sources[0])
            replaced = state.replace_segments(
                (*before[:first], segment, *before[first + len(sources) :]),
                state.version.log_start_offset,
            )
            self._cleaning = tuple(s for s in self._cleaning if s not in sources)
            state.cleaning = state.cleaning._replace(replacing=frozenset())
        state.pending_deletes.add(away, now_ms, state.rules.config.file_delete_delay_ms, replaced)

    def _segment_of(self, cleaned: Cleaned, sources: tuple[Segment, ...]) -> Segment:
        """Describes a cleaned segment under its final name.

        Its event times count as no more than in its sources, which may have had another limit.
        """
        times = cleaned.times
        if times.event is not None:
            counted = functools.reduce(later, (s.known.times.event for s in sources), None)
            times.event = earlier(times.event, counted)
        segment = Segment(
            self._state.directory, cleaned.base_offset, Tail(cleaned.end_offset, cleaned.size)
        )
        self._state.configure_segment(segment)
        segment.known.adoptions = self._state.timing.adoptions
        segment.known.is_closed = True
        line = SegmentLine(
            cleaned.base_offset,
            cleaned.end_offset,
            cleaned.size,
            times,
            cleaned.index_entries,
            cleaned.time_index_entries,
            cleaned.is_true,
        )
        segment.adopt(line, is_true=cleaned.is_true, covered_offset=cleaned.end_offset)
        return segment


def _finish_append_times(segments: Sequence[Segment]) -> None:
    """Ends and closes the files of append times, which the cleaner then has alone."""
    for segment in segments:
        segment.append_times.settle()
        segment.append_times.finish(segment.tail.end_offset)
        segment.append_times.close()
