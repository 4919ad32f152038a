"""Corrects the append times of a log after the clock was wrong.

- The clock went back, by more than append times wait for it: a correction says that all records
  were written by now, append times go on from the clock, and the largest event time is computed
  again from the records that remain. The log takes no append before.
- The clock went forward, and is trusted: a correction says by how much later the records were
  written that it stamped while it was behind.
- The clock leapt forward: nothing is corrected.
- The clock of a leader was behind that of the next one: a correction of the next one says by how much.

In each case the next append begins a new segment. A correction is durable before an append time is
lower than one before it. A crash earlier leaves a log whose next start finds that the clock has gone
back. `storage/time/corrections.py` has the rules.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import KafkaStorageError, NotLeaderOrFollower
from tidelog.storage.log.failures import storage_error
from tidelog.storage.log.high_watermark import Role
from tidelog.storage.log.retention import deletion
from tidelog.storage.log.times import behind
from tidelog.storage.log.times.behind import next_mark
from tidelog.storage.log.times.partition_times import ClockMark
from tidelog.storage.time.append_time import ahead
from tidelog.storage.time.corrections import (
    NO_HISTORY,
    Correction,
    after_step_back,
    after_step_forward,
    changes_at,
    is_behind,
    is_stale,
    judged_times,
    last_number,
    pending_steps,
    step_back,
    step_forward,
)
from tidelog.storage.time.event_time import capped
from tidelog.storage.time.timestamp import earliest, exceeds, later
from tidelog.storage.time.tombstones import late_horizons_by, with_late_horizons

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.adoption import Adoptions
    from tidelog.storage.time.corrections import ClockHistory, ForwardStep
    from tidelog.storage.time.segment_times import SegmentTimes

_log = logging.getLogger("tidelog.storage")


class ClockReset(NamedTuple):
    """What letting append times go back changes; times in ms, None if there is none."""

    now_ms: int
    offset: int  # at which a new segment begins; what lies before it was written by now
    last_append_time: int | None
    max_event_time: int | None
    next_max_event_time: int | None  # of the records that remain


class AppendClock:
    """Corrects the append times of one log. Its methods are for threads: they may read and sync."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def begin(self, history: ClockHistory, now_ms: int) -> None:
        """Catches up with the clock where the log is opened; raises KafkaStorageError.

        If the log has noted steps that the broker could not store, they are counted anew.
        """
        state = self._state
        if self._is_stale(history):
            self._note_steps(state.timing.steps._replace(number=last_number(history)))
        self.catch_up(history, now_ms)

    def catch_up(self, history: ClockHistory, now_ms: int) -> None:
        """Notes how the clock has changed: the steps that the log has not noted, and whether it went back.

        `now_ms` is what the clock showed when its history was this. Raises KafkaStorageError for what the
        disk refuses; a later call tries that again.
        """
        state = self._state
        clock = state.timing.steps
        pending = pending_steps(history, clock.history_id, clock.number)
        if pending and not state.ends.log_end_offset:  # there is nothing to correct
            number, step = pending[-1]
            steps = clock._replace(history_id=history.history_id, number=number)
            self._note_steps(steps, corrected_ms=step.to_ms)
            pending = ()
        failure: KafkaStorageError | None = None
        for number, step in pending:
            try:
                self.note_step_forward(step, history.history_id, number)
            except KafkaStorageError as error:  # the log counts it all the same, and the later ones
                failure = error
        self.note_step_back(now_ms, history)
        if failure is not None:
            raise failure

    @property
    def corrections(self) -> tuple[Correction, ...]:
        """What has been corrected in the log, in order."""
        return self._state.timing.corrections

    def changes_at(self, offset: int) -> list[ForwardStep]:
        """Returns what times in the record at an offset count as by now, as steps in their order."""
        return changes_at(self._state.timing.corrections, offset)

    # --- the clock went back ----------------------------------------------------------------------

    def note_step_back(self, now_ms: int, history: ClockHistory = NO_HISTORY) -> bool:
        """Notes that the clock went back: append times that are too far ahead of it go on from it.

        Returns whether that has happened; always False in a replicated log. Notes nothing if the
        log knows of a later step than the clock's history had when it was read. Raises KafkaStorageError.
        """
        state = self._state

        def is_due(now_ms: int) -> bool:
            return not self._is_stale(history) and self._is_behind(now_ms)

        with state.append_lock:
            if self._is_stale(history):
                return False
            if exceeds(state.deletion_ms, now_ms):  # that of the last round, by the clock before
                state.deletion_ms = now_ms
            timing = state.timing
            state.replace_timing(
                timing._replace(corrected_ms=earliest(timing.corrected_ms, now_ms))
            )
            if state.leadership.is_replicated:
                # Append times of other leaders are those of other clocks. But a segment that began
                # while this one was ahead would never be old by it.
                began_ms = state.active.known.times.created_clock
                state.begins_segment |= is_behind(began_ms, now_ms)
                if state.leadership.role is Role.LEADER:
                    behind.note_standstill(state, now_ms)
                return False
        if not self._is_behind(now_ms):
            return False
        return self._go_back(now_ms, is_due) is not None

    def _is_stale(self, history: ClockHistory) -> bool:
        clock = self._state.timing.steps
        return is_stale(history, clock.history_id, clock.number)

    def preview_reset(self, now_ms: int) -> ClockReset | None:
        """Returns what `reset` would change now; None if nothing is ahead of the clock.

        Raises KafkaStorageError and NotLeaderOrFollower.
        """
        state = self._state
        state.check_online()
        self._check_leads()
        self._learn()
        with state.append_lock:
            return self._reset_at(now_ms) if self._is_ahead(now_ms) else None

    def reset(self, now_ms: int) -> ClockReset | None:
        """Lets append times go on from the clock if they, or the largest event time, are ahead of it.

        Returns what has changed, None if nothing was ahead. Raises KafkaStorageError, and
        NotLeaderOrFollower on a follower: it has the corrections of its leader.
        """
        state = self._state
        state.check_online()
        self._check_leads()
        with state.append_lock:  # before segments are read, while appends go on
            if not self._is_ahead(now_ms):
                return None
        return self._go_back(now_ms, self._is_ahead)

    def _check_leads(self) -> None:
        state = self._state
        if state.is_follower:
            raise NotLeaderOrFollower(
                f"{state.topic}-{state.index}: the leader's append times go back, not a follower's"
            )

    def _is_behind(self, now_ms: int) -> bool:
        """Returns whether the clock shows less than what the last records were written by."""
        state = self._state
        latest_ms = state.last_append_time_ms
        if state.timing.corrections:
            last = state.timing.corrections[-1]
            if latest_ms is None or last.end_offset >= state.ends.log_end_offset:
                latest_ms = later(last.to_ms, latest_ms)  # nothing was appended since the last step
        return is_behind(latest_ms, now_ms)

    def _is_ahead(self, now_ms: int) -> bool:
        """Returns whether the last append time, or the largest event time, is ahead of the clock."""
        state = self._state
        limit_ms = capped(now_ms, state.rules.event_slack_ms)
        if ahead(state.last_append_time_ms, now_ms):
            return True
        return state.max_event_time is not None and exceeds(state.max_event_time, limit_ms)

    def _go_back(self, now_ms: int, is_due: Callable[[int], bool]) -> ClockReset | None:
        """Notes, durably, that what the log has was written by now; None if that is not due.

        Appends may go on until it is durable. One that does is waited for with the append lock.
        """
        state = self._state
        self._learn()
        try:
            with state.flush_lock:
                with state.append_lock:
                    state.check_open()
                    if not is_due(now_ms):
                        return None
                    reset, times = self._reset_at(now_ms), self._times_back(now_ms)
                state.saved_times.save(times, durable=True)
                with state.append_lock:
                    state.check_open()
                    if state.ends.log_end_offset != reset.offset:
                        reset, times = self._reset_at(now_ms), self._times_back(now_ms)
                        state.saved_times.save(times, durable=True)
                    self._take(times, now_ms)
        except OSError as error:
            raise storage_error(state, "the correction of the clock is not kept", error) from error
        _log.warning(
            "append times reset to the clock",
            extra=state.named(offset=reset.offset, to=now_ms) | {"from": reset.last_append_time},
        )
        return reset

    def _learn(self) -> None:
        """Reads the times of all segments, for the largest event time of those that remain."""
        with self._state.hold() as version:
            deletion.learn(version.segments)

    def _times_back(self, now_ms: int) -> PartitionTimes:
        """Returns the content for `partition.times` after a step back; needs the append lock."""
        state = self._state
        end_offset = state.ends.log_end_offset
        adoptions = state.timing.adoptions.corrected(step_back(end_offset, now_ms).apply)
        corrections = after_step_back(state.timing.corrections, end_offset, now_ms)
        return state.saved_times.covered()._replace(
            max_event_time=self._largest_event(corrections, adoptions),
            last_append_time_ms=None,
            back_offset=end_offset,
            adopted=adoptions.ranges,
            corrections=corrections,
            mark=next_mark(state),
            clock=state.timing.steps._replace(
                late_horizons=late_horizons_by(state.timing.steps.late_horizons, now_ms)
            ),
        )

    def _reset_at(self, now_ms: int) -> ClockReset:
        state = self._state
        return ClockReset(
            now_ms,
            state.ends.log_end_offset,
            state.last_append_time_ms,
            state.max_event_time,
            self._times_back(now_ms).max_event_time,
        )

    def _largest_event(
        self, corrections: tuple[Correction, ...], adoptions: Adoptions
    ) -> int | None:
        """Returns the largest event time of the records that remain, with these corrections."""
        state = self._state

        def judge(segment: Segment, times: SegmentTimes) -> SegmentTimes:
            base_offset, end_offset = segment.base_offset, segment.tail.end_offset
            adopted_ms = adoptions.latest_within(base_offset, end_offset)
            return judged_times(
                times, corrections, base_offset, end_offset, state.rules.event_slack_ms, adopted_ms
            )

        return state.largest_event.remaining(
            state.ends.high_watermark, state.version.segments, judge
        )

    def _take(self, times: PartitionTimes, now_ms: int) -> None:
        """Goes on with times that are durable; needs the append lock."""
        state = self._state
        correction = step_back(times.back_offset, now_ms)
        if state.producers is not None:
            state.producers.correct(lambda _, time_ms: correction.apply(time_ms))
        if exceeds(state.deletion_ms, now_ms):
            state.deletion_ms = now_ms
        timing = state.timing
        state.replace_timing(
            timing._replace(
                adoptions=timing.adoptions.corrected(correction.apply),
                steps=times.clock,
                corrections=times.corrections,
                mark=times.mark,
                back_offset=times.back_offset,
                corrected_ms=earliest(timing.corrected_ms, now_ms),
            )
        )
        limit = capped(now_ms, state.rules.event_slack_ms)
        state.largest_event.begin_again(lambda _: limit)
        state.arrivals.begin(times.max_event_time)
        state.last_append_time_ms, state.begins_segment = None, True

    # --- the clock went forward -------------------------------------------------------------------

    def note_step_forward(self, step: ForwardStep, history_id: str, number: int) -> None:
        """Counts what the clock stamped while it was behind as written later, by a trusted step.

        `number` is that of the step in the clock's history: each step is taken into account once.
        The append times of a follower are those of another clock: it corrects none.
        Raises KafkaStorageError; then this process counts it, and a later start does it again.
        """
        state = self._state
        try:
            with state.flush_lock:
                state.check_usable()
                with state.append_lock:
                    clock = state.timing.steps
                    if clock.history_id == history_id and number <= clock.number:
                        return
                    is_changed = self._step_forward(step)
                    horizons = state.timing.steps.late_horizons
                    self._note_steps(ClockMark(history_id, number, horizons))
                if is_changed or state.is_follower:
                    state.saved_times.save_covered(durable=True)
        except OSError as error:
            raise storage_error(state, "the correction of the clock is not kept", error) from error

    def _step_forward(self, step: ForwardStep) -> bool:
        """Takes a step into account; returns whether it can concern the log."""
        state = self._state
        state.replace_timing(state.timing._replace(corrected_ms=step.to_ms))
        is_compacted = self._has_late_horizons(step)
        if state.is_follower:
            return is_compacted
        # Once append times went back, earlier ones may be later than the last.
        is_written = (
            bool(state.timing.corrections)
            or state.last_append_time_ms is None
            or not exceeds(step.since_ms, state.last_append_time_ms)
        )
        end_offset, written = state.ends.log_end_offset, state.timing.appended_behind
        if written is not None:
            behind.correct(state, written._replace(behind_ms=step.shift_ms), step.to_ms)
            state.replace_timing(state.timing._replace(appended_behind=None))
        correction = step_forward(0, end_offset, step)
        is_adopted = state.timing.adoptions.corrected(correction.apply) != state.timing.adoptions
        if not is_written and not is_adopted and not is_compacted:
            return written is not None
        corrections = after_step_forward(state.timing.corrections, end_offset, step)
        behind.count_later(state, correction, corrections)
        return True

    def note_leaders_behind(self, now_ms: int) -> None:
        """Counts as later what leaders before have appended whose clocks were behind.

        This broker leads now, and `now_ms` is the time by which it deletes: nothing counts as written
        later. Raises KafkaStorageError.
        """
        state = self._state
        written = state.timing.written_behind
        if written is None:
            return
        try:
            with state.flush_lock:
                state.check_usable()
                with state.append_lock:
                    behind.correct(state, written, now_ms)
                    state.replace_timing(state.timing._replace(written_behind=None))
                state.saved_times.save_covered(durable=True)
        except OSError as error:
            raise storage_error(state, "the correction of the clock is not kept", error) from error
        _log.warning(
            "append times of earlier leaders corrected",
            extra=state.named(offset=written.start_offset, behind_ms=written.behind_ms),
        )

    def _has_late_horizons(self, step: ForwardStep) -> bool:
        """Notes that delete horizons of this broker are too early, if the log may have any."""
        state = self._state
        if not state.rules.config.is_compacted and state.cleaning.cleaned_offset is None:
            return False
        horizons = with_late_horizons(state.timing.steps.late_horizons, step.since_ms, step.to_ms)
        self._note_steps(state.timing.steps._replace(late_horizons=horizons))
        return True

    def _note_steps(self, steps: ClockMark, *, corrected_ms: int | None = None) -> None:
        state = self._state
        with state.append_lock:
            timing = state.timing._replace(steps=steps)
            if corrected_ms is not None:
                timing = timing._replace(corrected_ms=corrected_ms)
            state.replace_timing(timing)

    # --- either -----------------------------------------------------------------------------------

    def begin_segment_at_next_append(self) -> None:
        """Lets the next append begin a segment, unless the active one is empty."""
        with self._state.append_lock:
            self._state.begins_segment = True
