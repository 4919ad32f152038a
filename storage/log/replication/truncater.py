"""Truncating a log and restarting it empty: for a follower whose log differs from its leader's.

A truncation cuts, at the end of a batch, everything that belongs to the log. Its intention is
written to `partition.times` first, durably. A crash before that leaves the log as it was; after it,
the next start completes the truncation. Until a clean stop `partition.times` also says which values
of the directory's checkpoints may be older than the truncation.

Readers see the shorter log before the files are cut. A read that began earlier gets
NOT_LEADER_OR_FOLLOWER, because the generation of the log has changed when it ends.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage, OffsetOutOfRange
from tidelog.storage import filenames, files
from tidelog.storage.log import slices
from tidelog.storage.log.failures import half_way, storage_error
from tidelog.storage.log.producers import stability
from tidelog.storage.log.producers.recovered_producers import producers_before
from tidelog.storage.log.recovery import listing
from tidelog.storage.log.times.partition_times import Cut
from tidelog.storage.log.values import Truncation
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.searching import end_before
from tidelog.storage.segment.segment import Segment
from tidelog.storage.time.adoption import adopted_below
from tidelog.storage.time.corrections import (
    corrections_within,
    last_step_back,
    written_below,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.storage.log.compactor import Compactor
    from tidelog.storage.log.flusher import Flusher
    from tidelog.storage.log.state import LogState

_log = logging.getLogger("tidelog.storage")


class Truncater:
    """The part of a partition that truncates it."""

    __slots__ = ("_compactor", "_flusher", "_state")

    def __init__(self, state: LogState, flusher: Flusher, compactor: Compactor) -> None:
        self._state = state
        self._flusher = flusher
        self._compactor = compactor

    def truncate_to(self, offset: int, *, below_high_watermark: bool = False) -> int:
        """Drops every batch that reaches `offset` or is after it; returns the log end offset.

        The log ends after its last batch that is wholly before the offset. If no batch remains, and
        the offset is before the log's start, the log restarts empty there. The truncation is
        durable when it returns. Records below the high watermark may have been read and
        acknowledged: they are dropped only with `below_high_watermark`, for an unclean election.
        Raises OffsetOutOfRange and KafkaStorageError; if cutting the files fails half way, the log
        is offline.
        """
        state = self._state
        state.check_online()
        with state.commit_lock, state.flush_lock, state.append_lock:
            state.check_open()
            if offset < 0 or (offset < state.ends.high_watermark and not below_high_watermark):
                raise OffsetOutOfRange(
                    f"{state.topic}-{state.index} is not truncated to {offset}: what lies below its "
                    f"high watermark {state.ends.high_watermark} may have been read"
                )
            if offset >= state.ends.log_end_offset:
                self._forget_empty_epochs()
                return state.ends.log_end_offset
            if offset < state.version.log_start_offset:
                self._begin_anew(offset)
            else:
                self._cut(offset)
        return state.ends.log_end_offset

    def start_at(self, offset: int) -> None:
        """Drops every batch, and restart the log, empty, at an offset. Durable when it returns.

        This is for a follower whose leader's log starts after the end of its own. Raises
        OffsetOutOfRange and KafkaStorageError; if removing the files fails half way, the log is
        offline.
        """
        state = self._state
        state.check_online()
        with state.commit_lock, state.flush_lock, state.append_lock:
            state.check_open()
            if offset < 0:
                raise OffsetOutOfRange(f"{state.topic}-{state.index} cannot start at {offset}")
            self._begin_anew(offset)

    def _forget_empty_epochs(self) -> None:
        """Removes an epoch that began at the log's end and got no batch.

        This broker was its leader; the next batches here are of another's epoch, as Kafka's
        `UnifiedLog.truncateTo` has it. Raises KafkaStorageError.
        """
        state = self._state
        with self._as_before():
            state.epochs.truncate_to(state.ends.log_end_offset)
            state.epochs.sync()

    def _cut(self, offset: int) -> None:
        state = self._state
        segments, log_start_offset = state.version.segments, state.version.log_start_offset
        number = max(n for n, segment in enumerate(segments) if segment.base_offset <= offset)
        kept, old, gone = segments[:number], segments[number], segments[number + 1 :]
        with self._as_before():
            state.active.repair_tail()
            state.active.indexes.complete()
            old.append_times.settle()  # its file will no longer need an END entry
            tail = end_before(old, offset) if offset > old.base_offset else Tail(offset, 0)
            start_offset = min(log_start_offset, tail.end_offset)
            self._intend(kept, start_offset, tail.end_offset, begins_anew=False)
        cut = Segment(state.directory, old.base_offset, tail)
        state.configure_segment(cut)
        cut.known.adoptions = state.timing.adoptions
        cut.indexes.is_true = old.indexes.is_true or not tail.size
        cut.indexes.are_true = old.indexes.are_true or not tail.size
        state.largest_event.truncate_to(tail.end_offset)
        producers = state.producers
        high_watermark = min(state.ends.high_watermark, tail.end_offset)
        with half_way(state, "a truncation"):
            self._publish((*kept, cut), start_offset, tail.end_offset, high_watermark)
            self._remove(gone)
            old.give_up()  # a lookup that still reads it must not write its indexes
            cut.cut(tail)
            cut.known.copy_from(old.known)
            cut.activate()
            self._finish(tail.end_offset, begins_anew=False)
        if producers is not None:
            # If they cannot be read, the next append reads all of them.
            with contextlib.suppress(OSError, CorruptMessage):
                before = producers_before(
                    producers,
                    state.version.segments,
                    tail.end_offset,
                    state.deletion_ms,
                    state.timing.corrections,
                )
                if before is not None:
                    stability.take(state, before)

    def _begin_anew(self, offset: int) -> None:
        state = self._state
        gone = state.version.segments
        first = Segment(state.directory, offset, Tail(offset, 0))
        state.configure_segment(first)
        with self._as_before():
            self._intend((), offset, offset, begins_anew=True)
        first.known.adoptions = state.timing.adoptions
        state.largest_event.truncate_to(0)
        state.unstable = None
        with half_way(state, "a truncation"):
            self._publish((first,), offset, offset, offset)
            self._remove(gone)
            first.activate()
            self._finish(offset, begins_anew=True)

    def _intend(
        self, kept: Sequence[Segment], start_offset: int, end_offset: int, *, begins_anew: bool
    ) -> None:
        """Records durably the truncation that follows. Raises OSError.

        `partition.times` then has no line of a segment that will change.
        """
        state = self._state
        state.largest_event.keep(state.max_event_time)
        last_append_time_ms, back_offset = self._last_times(end_offset, begins_anew=begins_anew)
        recovery_point = min(state.durability.recovery_point, end_offset)
        bases = {segment.base_offset for segment in kept}
        cleaned_offset = state.cleaning.cleaned_offset
        if cleaned_offset is not None:
            cleaned_offset = min(cleaned_offset, end_offset)
        first_offset = min(start_offset, state.version.segments[0].base_offset)
        times = state.saved_times.current()
        times = times._replace(
            last_append_time_ms=last_append_time_ms,
            back_offset=back_offset,
            log_start_offset=start_offset,
            covered_offset=min(state.durability.covered_offset, end_offset),
            segments=tuple(line for line in times.segments if line.base_offset in bases),
            cut=Cut(recovery_point, cleaned_offset, end_offset, begins_anew),
            adopted=adopted_below(times.adopted, end_offset),
            corrections=corrections_within(times.corrections, first_offset, end_offset),
            written_behind=written_below(times.written_behind, end_offset),
        )
        state.saved_times.save(times, durable=True)
        state.last_append_time_ms = last_append_time_ms
        state.durability = state.durability._replace(
            recovery_point=recovery_point, covered_offset=times.covered_offset
        )
        state.cleaning = state.cleaning._replace(cleaned_offset=cleaned_offset)
        state.truncation = Truncation((end_offset, begins_anew), was_cut=True)
        state.gaps_end_offset = min(state.gaps_end_offset, end_offset)
        state.replace_timing(
            state.timing._replace(
                adoptions=state.timing.adoptions._replace(ranges=times.adopted),
                corrections=times.corrections,
                back_offset=back_offset,
                written_behind=times.written_behind,
            )
        )

    def _last_times(self, end_offset: int, *, begins_anew: bool) -> tuple[int | None, int]:
        """Returns the last append time that remains, and the last reset in the log. Raises OSError.

        If nothing remains, or it is unknown, the append clock does not go back.
        """
        state = self._state
        back_offset = state.timing.back_offset
        if back_offset > end_offset:
            back_offset = last_step_back(state.timing.corrections, end_offset)
        if end_offset == back_offset > 0:
            return None, back_offset
        last_time = None
        segment = slices.segment_of(state.version.segments, end_offset - 1)
        if not begins_anew and segment is not None:
            last_time = segment.append_times.at(end_offset - 1)
        return state.last_append_time_ms if last_time is None else last_time, back_offset

    def _publish(
        self,
        segments: tuple[Segment, ...],
        start_offset: int,
        end_offset: int,
        high_watermark: int,
    ) -> None:
        """Lets readers see the shorter log from now on; reads in progress are refused."""
        state = self._state
        state.cut_ends(end_offset, high_watermark)
        state.replace_segments(segments, start_offset)
        state.begin_generation()
        self._compactor.overtake()

    def _remove(self, gone: Sequence[Segment]) -> None:
        """Removes the files of segments, the last segment first. Raises OSError."""
        for segment in reversed(gone):
            for path in segment.files.rename_away():
                files.unlink(path)
            segment.give_up()

    def _finish(self, end_offset: int, *, begins_anew: bool) -> None:
        """Truncates the shared files, makes all durable, and records the end. Raises OSError."""
        state = self._state
        self._drop_snapshots(-1 if begins_anew else end_offset)
        if begins_anew:
            state.epochs.forget_all()
        else:
            state.epochs.truncate_to(end_offset)
        self._flusher.sync(state.active.sync)
        state.epochs.sync()
        files.sync(state.directory)
        self._flusher.forget_flushed()
        state.truncation = Truncation(was_cut=True)
        state.saved_times.save_covered(durable=True)
        state.begin_generation()
        _log.warning(
            "log truncated",
            extra=state.named(end_offset=end_offset, begins_anew=begins_anew),
        )

    def _drop_snapshots(self, end_offset: int) -> None:
        """Removes the producer snapshots after an offset. Raises OSError."""
        directory = self._state.directory
        for offset in listing.listed(directory).snapshot_offsets:
            if offset > end_offset:
                files.unlink(filenames.snapshot_path(directory, offset))

    @contextlib.contextmanager
    def _as_before(self) -> Iterator[None]:
        """Raises the error of a step before any change."""
        try:
            yield
        except OSError as error:
            raise storage_error(self._state, "the log cannot be truncated", error) from error
