"""Leading and following: what a log does when it becomes a leader or a follower.

A leader epoch begins durably before the first append in it, so that followers find the same epochs
in formats 0 and 1, which have none in their bytes. A leader's append times go on from the last one
it has, whatever its clock shows: never back over a change of the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import FencedLeaderEpoch
from tidelog.storage.log.epochs import begin_leader_epoch
from tidelog.storage.log.failures import storage_error
from tidelog.storage.log.high_watermark import Role, believed
from tidelog.storage.log.times import judging
from tidelog.storage.log.times.largest_event import CountedBatch
from tidelog.storage.segment import survey
from tidelog.storage.time.adoption import adopted_below
from tidelog.storage.time.corrections import bounded_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.storage.log.replication.truncater import Truncater
    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment


class Roles:
    """The part of a partition that makes it lead or follow."""

    __slots__ = ("_state", "_truncater")

    def __init__(self, state: LogState, truncater: Truncater) -> None:
        self._state = state
        self._truncater = truncater

    def lead(self, epoch: int, *, high_watermark: int | None = None) -> int:
        """Leads from now on, in a leader epoch; returns the offset at which the epoch starts.

        Replication moves the high watermark, and no time policy deletes anything before it has
        reached that offset. A log that has lost append times with the power leads only after an
        unclean election: it marks that append times may go back here, so that others can follow.
        `high_watermark` is as for `follow`. Raises KafkaStorageError, and FencedLeaderEpoch for an
        epoch that is over.
        """
        state = self._state
        state.check_online()
        with state.append_lock:
            state.check_usable()
            try:
                self._begin(Role.LEADER, epoch, high_watermark)
                end_offset, timing = state.ends.log_end_offset, state.timing
                if state.recovery.lost_offset is not None:
                    # Others may have later append times than any that is known here.
                    mark = timing.mark.next_in(epoch)
                    timing = timing._replace(back_offset=end_offset, mark=mark)
                    state.begins_segment = True
                state.leadership = state.leadership._replace(
                    epoch_start_offset=end_offset, has_begun_to_follow=False
                )
                self._note_lost(None)
                # What the leader before said of batches that this log never got goes.
                adoptions = timing.adoptions
                ranges = adopted_below(adoptions.ranges, end_offset)
                timing = timing._replace(
                    corrections=judging.held(state, timing.corrections),
                    adoptions=adoptions._replace(ranges=ranges),
                )
                state.replace_timing(timing)
                state.epochs.begin(epoch, end_offset)
                state.saved_times.save_covered(durable=True)
            except OSError as error:
                raise storage_error(state, "the epoch cannot begin", error) from error
        return end_offset

    def follow(self, epoch: int, *, high_watermark: int | None = None) -> int:
        """Follows from now on, in a leader epoch; returns the offset from which to fetch.

        A log that was just opened counts as readable to its end. If it was a replica, the
        checkpoint says how far it may be read after all, or `high_watermark` does. Batches whose
        append times the last power loss took are dropped, because the leader has both. Raises
        KafkaStorageError, and FencedLeaderEpoch for an epoch that is over.
        """
        state = self._state
        state.check_online()
        with state.append_lock:
            state.check_usable()
            try:
                self._begin(Role.FOLLOWER, epoch, high_watermark)
                # Who leads on, in a new epoch, still has to correct it: its followers believe it.
                state.replace_timing(state.timing._replace(appended_behind=None))
                state.leadership = state.leadership._replace(
                    epoch_start_offset=0, has_begun_to_follow=True
                )
                # It may have led without an append: batches of an older epoch may come there now.
                state.epochs.truncate_to(state.ends.log_end_offset)
                state.saved_times.save_covered(durable=True)
            except OSError as error:
                raise storage_error(state, "the role is not kept", error) from error
        if state.recovery.lost_offset is not None:
            self._drop_from(state.recovery.lost_offset)
        return state.ends.log_end_offset

    def _drop_from(self, lost_offset: int) -> None:
        """Drops the batches whose append times were lost. Raises KafkaStorageError.

        Until they are gone, durably, the next role and the next start must know of them.
        """
        state = self._state
        offset = max(lost_offset, state.version.log_start_offset)
        self._truncater.truncate_to(offset, below_high_watermark=True)
        with state.append_lock:
            self._note_lost(None)
            try:
                state.saved_times.save_covered(durable=True)
            except OSError as error:
                self._note_lost(lost_offset)
                raise storage_error(state, "the role is not kept", error) from error

    def _note_lost(self, lost_offset: int | None) -> None:
        state = self._state
        state.recovery = state.recovery._replace(lost_offset=lost_offset)

    def resign(self) -> None:
        """Leads no more, and does not know yet whom to follow.

        Until it is told, it deletes and compacts nothing by its own settings. Appends that are in a thread
        still belong to its epoch.
        """
        self._state.take_role(Role.FOLLOWER)

    def become_only_replica(self) -> None:
        """Leads, durably, as the only replica of the partition: its own settings delete and compact.

        All that the log has is readable. Raises KafkaStorageError; then the log still awaits its role.
        """
        state = self._state
        with state.append_lock:
            state.check_usable()
            before = state.recovery
            state.recovery = before._replace(known_high_watermark=None)
            state.become_only_replica()
            try:
                state.saved_times.save_covered(durable=True)
            except OSError as error:
                state.await_role()
                state.recovery = before
                raise storage_error(state, "the role is not kept", error) from error

    def _begin(self, role: Role, epoch: int, high_watermark: int | None) -> None:
        """Takes a role, and lowers the high watermark. Raises OSError and FencedLeaderEpoch."""
        state = self._state
        if epoch < state.leadership.epoch:
            raise FencedLeaderEpoch(
                f"{state.topic}-{state.index}: leader epoch {epoch} is over, it is {state.leadership.epoch}"
            )
        counted = state.largest_event.kept if state.recovery.is_counted else None
        known_high_watermark = self._take_known_high_watermark()
        begin_leader_epoch(state, epoch)
        if role is Role.LEADER and state.timing.corrections and not state.leadership.is_replicated:
            mark = state.timing.mark.next_in(epoch)  # of what was corrected by the only replica
            state.replace_timing(state.timing._replace(mark=mark))
        state.take_role(role)
        if high_watermark is None:
            high_watermark = known_high_watermark
        if high_watermark is not None and high_watermark < state.ends.high_watermark:
            high_watermark = max(high_watermark, state.version.log_start_offset)
            above = [s for s in state.version.segments if s.tail.end_offset > high_watermark]
            events = self._events_of(above, high_watermark, counted)
            state.largest_event.hold_back(events, high_watermark)
            state.cut_ends(state.ends.log_end_offset, high_watermark)
        state.recovery = state.recovery._replace(is_counted=True)

    def _take_known_high_watermark(self) -> int | None:
        """Returns how far a log that was just opened may be read; None: to its end."""
        state = self._state
        known = believed(state) if state.awaits_role else None
        state.recovery = state.recovery._replace(known_high_watermark=None)
        return known

    def _events_of(
        self, segments: Iterable[Segment], high_watermark: int, counted: int | None
    ) -> Iterator[CountedBatch]:
        """Yields the batches, with their event times as they count. Raises OSError.

        What is known of the beginning of a segment, and lies below the high watermark, counts as one.
        What lies below it was `counted` as no more than this; None: that is not known.
        """
        state = self._state
        for segment in segments:
            position = 0
            times, size = segment.known.times, segment.known.size
            if size and not state.timing.corrections and segment.indexes.are_true:
                found = next(segment.walk(size), None)
                # Where a compressed batch of format 0 or 1 begins is not known without unpacking it.
                if found is not None and 0 <= found.batch.base_offset <= high_watermark:
                    yield CountedBatch(found.batch.base_offset, times.event, segment.base_offset)
                    position = size
            for end_offset, event in survey.event_times(
                segment.known, position, counted_offset=high_watermark, counted=counted
            ):
                slack_ms = state.rules.event_slack_ms
                yield CountedBatch(
                    end_offset,
                    bounded_event(state.timing.corrections, end_offset - 1, event, slack_ms),
                    segment.base_offset,
                )
