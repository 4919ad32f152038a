"""Retention of a log: policies delete the oldest segments, and DeleteRecords moves the log start.

`storage/time/retention.py` decides which segments are deleted: first without a lock, because times
may have to be read, then under the flush lock, under which only appends change the log. `explain`
uses the same function. The event times of deleted segments are kept, and the log start moves: no
restart moves it back.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage, OffsetOutOfRange
from tidelog.storage.log.failures import read_error, storage_error
from tidelog.storage.log.retention import deletion, explanation, known_times
from tidelog.storage.log.retention.explanation import Moment
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.times import judging
from tidelog.storage.time.retention import NO_LIMITS, Retention, retention_of, segments_to_delete
from tidelog.storage.time.rolling import rolling_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.compaction.explain import CompactionBlocker
    from tidelog.storage.log.compactor import Compactor
    from tidelog.storage.log.flusher import Flusher
    from tidelog.storage.log.retention.deletion import Deletion
    from tidelog.storage.log.retention.explanation import PartitionExplanation
    from tidelog.storage.log.retention.findings import Facts
    from tidelog.storage.log.retention.known_times import KnownTimes
    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.version import Version
    from tidelog.storage.segment.log_file import Tail
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.corrections import Correction

_log = logging.getLogger("tidelog.storage")


class _Judged(NamedTuple):
    """The oldest segments of a version, which retention will delete."""

    segments: tuple[Segment, ...]
    tail: Tail | None  # of the last of them, if that is active
    rules: Retention
    policies: list[str]


class Retainer:
    """Deletes segments of one log by its policies, and explains them."""

    __slots__ = ("_compactor", "_flusher", "_state")

    def __init__(self, state: LogState, flusher: Flusher, compactor: Compactor) -> None:
        self._state = state
        self._flusher = flusher
        self._compactor = compactor

    def apply_retention(
        self, now_ms: int, corrections: Sequence[Correction] | None = None
    ) -> list[Deletion]:
        """Deletes the oldest segments that the topic's settings expire; returns the deletions.

        Each deletion is logged. Files that were deleted file.delete.delay.ms ago, and that no
        reader holds, are removed. Call it in a thread, at intervals. Deletes nothing if the log has
        other `corrections` than it had before `now_ms` was asked for: a later one may be of a clock that
        has gone back since. Raises KafkaStorageError.
        """
        state = self._state
        state.check_online()
        try:
            with state.hold() as version:
                judged = self._judge(version, now_ms)  # reads what it needs, without a lock
            with state.flush_lock:
                state.check_usable()
                if corrections is not None and state.timing.corrections is not corrections:
                    return []
                state.deletion_ms = now_ms
                state.pending_deletes.remove_due(now_ms, state.oldest_held())
                if not self._still_holds(judged):
                    judged = self._judge(state.version, now_ms)
                deletions = self._delete_old_segments(judged, now_ms)
                if deletions:
                    self._remove_at_once(now_ms)
                return deletions
        except OSError as error:
            raise storage_error(state, "retention failed", error) from error

    def _judge(self, version: Version, now_ms: int) -> _Judged:
        """Returns the segments to delete; reads unknown times of segments. Raises OSError.

        It writes nothing.
        """
        state, segments = self._state, version.segments
        rules = self._rules(state.rules.config)
        if state.awaits_role:  # its event times do not count yet, and would be gone
            return _Judged((), None, rules, [])
        # Taken before any segment is read, so that later appends do not count.
        tail = segments[-1].tail
        if rules.event_ms is not None:
            deletion.learn(segments)
        policies = segments_to_delete(
            deletion.candidates(segments, functools.partial(judging.judged_times_of, state)),
            rules,
            now_ms=now_ms,
            log_start_offset=version.log_start_offset,
            high_watermark=state.ends.high_watermark,
            max_event_time=state.max_event_time,
        )
        deletion.learn(segments[: len(policies)])
        is_all = len(policies) == len(segments)
        return _Judged(segments[: len(policies)], tail if is_all else None, rules, policies)

    def _rules(self, config: TopicConfig) -> Retention:
        """Returns what may delete segments; by their times and sizes only a leader decides.

        A replica that was opened waits until it is told whether it leads.
        A new leader waits until its high watermark has reached what it had when it was elected:
        before, it may not know yet what its consumers have seen.
        """
        state = self._state
        if state.is_follower or state.awaits_role:
            return NO_LIMITS
        if state.ends.high_watermark < state.leadership.epoch_start_offset:
            return NO_LIMITS
        return retention_of(config)

    def _still_holds(self, judged: _Judged) -> bool:
        """Returns whether the judged segments are still the oldest, and the settings the same."""
        segments = self._state.version.segments[: len(judged.segments)]
        return segments == judged.segments and self._rules(self._state.rules.config) == judged.rules

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start up to `offset`, if it is lower; returns the log start (KIP-107).

        The new start is durable. Whole segments before it are deleted with the next
        `apply_retention`. Raises OffsetOutOfRange and KafkaStorageError.
        """
        state = self._state
        state.check_online()
        high_watermark = state.ends.high_watermark
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRange(
                f"{state.topic}-{state.index}: offset {offset} is not between 0 and "
                f"{high_watermark}"
            )
        try:
            with state.flush_lock:
                state.check_usable()
                with state.append_lock:
                    state.move_start(offset)
                    judging.forget_corrections(state)
                # The log must be durable up to its start, or a power loss could leave a log
                # that ends before it starts.
                if state.durability.recovery_point < state.version.log_start_offset:
                    self._flusher.sync_all()
                state.saved_times.save_covered(durable=True)
        except OSError as error:
            raise storage_error(state, "records cannot be deleted", error) from error
        return state.version.log_start_offset

    def _delete_old_segments(self, judged: _Judged, now_ms: int) -> list[Deletion]:
        """Deletes the judged segments.

        A segment that cannot be deleted is tried again next time.
        """
        state, policies = self._state, judged.policies
        if not policies:
            return []
        with state.append_lock:
            if state.is_stopped:
                return []
            if judged.tail is not None:
                last = judged.segments[-1]
                is_judged = state.active is last and last.tail == judged.tail
                if not is_judged or not self._roll_if_there_is_room():
                    policies.pop()
            going = judged.segments[: len(policies)]
            if not going:
                return []
            max_event_time = state.max_event_time
            log_start_offset = state.version.log_start_offset
            state.largest_event.keep(max_event_time)
            left = state.version.segments[len(going) :]
            replaced = state.replace_segments(left, max(log_start_offset, left[0].base_offset))
            judging.forget_corrections(state)
        deletions: list[Deletion] = []
        try:
            self._save_times_on_full_disk(going)
            for segment, policy in zip(going, policies, strict=True):
                deleted, away = deletion.delete(
                    segment,
                    judging.judged(state, segment, segment.known.times),
                    policy,
                    judged.rules,
                    log_start_offset,
                    max_event_time,
                )
                delay_ms = state.rules.config.file_delete_delay_ms
                state.pending_deletes.add(away, now_ms, delay_ms, replaced)
                deletion.say(state.topic, state.index, deleted)
                deletions.append(deleted)
        except OSError:
            # After a restart their files would be segments again, but before the log's start.
            with state.append_lock:
                state.replace_segments(
                    (*going[len(deletions) :], *state.version.segments),
                    state.version.log_start_offset,
                )
            raise
        self._forget_epochs()
        return deletions

    def _roll_if_there_is_room(self) -> bool:
        """Begins a new segment, so that the last one can be deleted; False if the disk is full."""
        try:
            roll(self._state)
        except OSError as error:
            if not deletion.is_full(error):
                raise
            return False
        return True

    def _remove_at_once(self, now_ms: int) -> None:
        """Removes the files just deleted, where file.delete.delay.ms is 0: a full disk needs the room.

        What cannot be removed is tried again next time.
        """
        try:
            self._state.pending_deletes.remove_due(now_ms, self._state.oldest_held())
        except OSError as error:
            _log.warning("deleted segment files not removed", extra={"reason": str(error)})

    def _save_times_on_full_disk(self, going: Sequence[Segment]) -> None:
        """Saves the event times of segments to delete; on a full disk, deletes them all the same.

        Times that could not be saved are saved with the next flush. Raises OSError.
        """
        state = self._state
        try:
            state.saved_times.save_covered(durable=True)
        except OSError as error:
            if not deletion.is_full(error):
                raise
            deletion.make_room(going)
            with contextlib.suppress(OSError):
                state.saved_times.save_covered(durable=True)

    def _forget_epochs(self) -> None:
        """Removes the leader epochs of deleted segments; a failure is tried again next time."""
        state = self._state
        try:
            with state.append_lock:  # an append may begin an epoch
                state.epochs.forget_before(state.version.log_start_offset)
        except OSError as error:
            _log.warning("leader epochs not written", extra={"reason": str(error)})

    # --- what will go -----------------------------------------------------------------------------

    def explain(
        self,
        now_ms: int,
        config: TopicConfig | None = None,
        blocker: CompactionBlocker | None = None,
        clock_ms: int | None = None,
    ) -> PartitionExplanation:
        """Returns for each segment what will delete it and when, or what holds it; changes nothing.

        `config` replaces the topic's settings. `blocker` is what prevents compaction of the log.
        `clock_ms` is what the clock shows, if that is not `now_ms`, the time by which is deleted.
        Call it in a thread: unknown times of segments are read. Raises KafkaStorageError and
        CorruptMessage.
        """
        state = self._state
        state.check_online()
        config = state.rules.config if config is None else config
        with state.hold() as version:
            try:
                for segment in version.segments:
                    segment.known.learn()
                moment = self._moment(version, now_ms, config, blocker)
                return explanation.explain(
                    state.topic, state.index, moment, self._rules(config), now_ms, clock_ms
                )
            except (OSError, CorruptMessage) as error:
                raise read_error(state, version, error) from error

    def facts(self, most_bytes: int = 0) -> Facts:
        """Returns what is known of the log's times, for `diagnosis.diagnose`.

        Segments whose times are unknown are read until `most_bytes` have been: with more than 0,
        call it in a thread. Raises KafkaStorageError and CorruptMessage.
        """
        state = self._state
        state.check_online()
        with state.hold() as version:
            try:
                for segment in version.segments:
                    if most_bytes <= 0:
                        break
                    known_size = segment.known.size
                    most_bytes -= max(segment.tail.size - known_size, 0)
                    segment.known.learn()
            except (OSError, CorruptMessage) as error:
                raise read_error(state, version, error) from error
            return known_times.facts(
                version.segments,
                state.judge,
                log_start_offset=version.log_start_offset,
                high_watermark=state.ends.high_watermark,
                max_event_time=state.max_event_time,
                last_append_time=state.last_append_time_ms,
                corrections=state.timing.corrections,
                is_replicated=state.leadership.is_replicated,
                arrivals=state.arrivals,
            )

    def _moment(
        self,
        version: Version,
        now_ms: int,
        config: TopicConfig,
        blocker: CompactionBlocker | None,
    ) -> Moment:
        state = self._state
        with state.append_lock:
            ends = state.ends
            moment = Moment(
                version.segments,
                deletion.candidates(
                    version.segments, functools.partial(judging.judged_times_of, state)
                ),
                version.log_start_offset,
                ends.high_watermark,
                ends.log_end_offset,
                state.max_event_time,
                state.last_append_time_ms,
                rolling_of(config),
                state.begins_segment,
                state.leadership.is_replicated,
            )
        compacting = self._compactor.compacting(version.segments, now_ms, config, blocker)
        return moment._replace(compacting=compacting)

    def known_times(self, now_ms: int) -> KnownTimes:
        """Returns what is known of the log's times without reading anything."""
        state, version = self._state, self._state.version
        rules = self._rules(state.rules.config)
        return known_times.collect(
            version.segments,
            rules,
            state.judge,
            now_ms=now_ms,
            log_start_offset=version.log_start_offset,
            high_watermark=state.ends.high_watermark,
            max_event_time=None if rules.event_ms is None else state.max_event_time,
        )
