"""What a leader sends its followers about its log, beside the batches and their append times.

The leader reads it together with the batches, and a follower takes it over with them. So replicas
stamp, retain and look up alike: a follower that is elected goes on from its leader's last append
time, counts event times as its leader did, and judges append times by the same corrections.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.log.times import judging
from tidelog.storage.time.adoption import told_by_leader
from tidelog.storage.time.corrections import (
    NO_MARK,
    event_limit_at,
    with_deleted,
    with_written,
    written_below,
)
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, later
from tidelog.storage.time.tombstones import with_late_horizons

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.storage.checkpoints import EpochStart
    from tidelog.storage.log.slices import Fetched, SliceAppendTimes
    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.version import Version
    from tidelog.storage.time.adoption import Adopted
    from tidelog.storage.time.corrections import Correction, Mark, WrittenBehind


class LeaderState(NamedTuple):
    """What a leader sends its followers about its log; times in ms."""

    high_watermark: int
    log_start_offset: int
    last_append_time_ms: int | None  # of its last batch; None: unknown
    max_event_time: int | None  # below its high watermark
    back_offset: int = 0  # the last reset of the append clock; 0: none
    mark: Mark = NO_MARK  # the last correction
    corrections: tuple[Correction, ...] = ()
    # Of unknown append times; None: the leader is silent.
    adopted: tuple[Adopted, ...] | None = None
    cleaned_offset: int | None = None  # before which it has compacted the log; None: never
    late_horizons: tuple[int, int] | None = None  # see `tombstones.counted_horizon`
    behind_ms: int = 0  # how far its clock is behind that of this broker; 0: no more than it may be


class ForFollower(NamedTuple):
    """The answer to a follower's fetch, from one version of the log."""

    fetched: Fetched
    append_times: list[SliceAppendTimes]
    epochs: tuple[EpochStart, ...]  # of the batches
    leader: LeaderState


def leader_state(state: LogState, version: Version) -> LeaderState:
    """Returns what a leader's followers have to know now. Nothing is read for it."""
    with state.append_lock:
        return LeaderState(
            state.ends.high_watermark,
            version.log_start_offset,
            state.last_append_time_ms,
            state.max_event_time,
            state.timing.back_offset,
            state.timing.mark,
            state.timing.corrections,
            state.timing.adoptions.ranges,
            state.cleaning.cleaned_offset,
            state.timing.steps.late_horizons,
        )


def is_outdated(state: LogState, leader: LeaderState) -> bool:
    """Returns whether an answer is older than a correction that the same leader has sent."""
    return leader.mark < state.timing.mark and state.timing.mark.epoch >= state.leadership.epoch


def take_corrections(state: LogState, leader: LeaderState) -> bool:
    """Judges append times as the leader does from now on; needs the append lock.

    Returns whether its mark is newer, which alone lowers what is known of times: then the largest
    event time is counted again. The leader's corrections replace the follower's own, which no
    leader of a later epoch has, but for those of what the leader has deleted. A newer mark is
    durable when this returns. Raises OSError; then the mark is as before, so the next answer does
    all of this again.
    """
    is_newer = leader.mark > state.timing.mark
    if state.leadership.leader_cleaned_offset != leader.cleaned_offset:
        state.leadership = state.leadership._replace(leader_cleaned_offset=leader.cleaned_offset)
    if leader.late_horizons is not None:
        horizons = with_late_horizons(state.timing.steps.late_horizons, *leader.late_horizons)
        steps = state.timing.steps._replace(late_horizons=horizons)
        state.replace_timing(state.timing._replace(steps=steps))
    if leader.adopted is not None and leader.adopted != state.timing.adoptions.ranges:
        _take_adoptions(state, leader.adopted)
    corrections = with_deleted(
        state.timing.corrections, leader.corrections, leader.log_start_offset
    )
    if corrections != state.timing.corrections:
        state.replace_timing(state.timing._replace(corrections=corrections))
        if state.timing.mark != leader.mark:
            state.producers, state.is_read = None, False  # their times are judged anew
    if is_newer:
        state.largest_event.begin_again(
            lambda offset: event_limit_at(
                corrections, offset, MAX_TIMESTAMP, state.rules.event_slack_ms
            )
        )
    if state.timing.mark != leader.mark:
        times = state.saved_times.covered()._replace(mark=leader.mark)
        state.saved_times.save(times, durable=True)
        state.replace_timing(state.timing._replace(mark=leader.mark))
    return is_newer


def _take_adoptions(state: LogState, told: tuple[Adopted, ...]) -> None:
    """Counts unknown append times as the leader does, where it has adopted them. Raises OSError."""
    own = state.timing.adoptions
    ranges = told_by_leader(told, own.ranges, state.ends.log_end_offset)
    if ranges != own.ranges:
        judging.use_adoptions(state, own._replace(ranges=ranges))
        # Before batches are stored: a start would take their unknown append times for lost ones.
        state.saved_times.save_covered(durable=False)


def note_behind(
    state: LogState,
    leader: LeaderState,
    epochs: Iterable[EpochStart],
    has_batches: bool,
    *,
    is_newer: bool,
) -> None:
    """Notes what a leader has appended whose clock is behind; needs the append lock.

    That is what comes with this answer, which is not stored yet, and with the first answer in an epoch
    all of that epoch. `epochs` are the leader's entries for what comes. A leader that has set its clock
    right and corrected its log is believed. What is noted is durable when this returns: this broker may
    be restarted before it leads. Raises OSError; then what was noted is as before, and the next answer
    in this epoch counts as its first.
    """
    written = None
    if leader.behind_ms or not is_newer:
        written = written_with(state, leader.behind_ms, epochs, has_batches)
    if written != state.timing.written_behind:
        state.leadership = state.leadership._replace(compared_epoch=-1)
        times = state.saved_times.covered()._replace(written_behind=written)
        state.saved_times.save(times, durable=True)
        state.replace_timing(state.timing._replace(written_behind=written))
    if state.leadership.compared_epoch != state.leadership.epoch:
        state.leadership = state.leadership._replace(compared_epoch=state.leadership.epoch)


def written_with(
    state: LogState, behind_ms: int, epochs: Iterable[EpochStart], has_batches: bool
) -> WrittenBehind | None:
    """Returns what `note_behind` notes with an answer of a leader that has not corrected its log."""
    written, since_offset = state.timing.written_behind, state.ends.log_end_offset
    if not behind_ms:
        return written_below(written, since_offset)
    if state.leadership.compared_epoch != state.leadership.epoch:
        entries = itertools.chain(state.epochs.entries, epochs)
        begun = (each for each in entries if each.epoch == state.leadership.epoch)
        since_offset = min((each.start_offset for each in begun), default=since_offset)
    if has_batches or since_offset < state.ends.log_end_offset:
        return with_written(written, since_offset, behind_ms)
    return written


def take_last_append_time(state: LogState, leader: LeaderState, *, is_newer: bool) -> None:
    """Goes on from the leader's last append time; needs the append lock.

    A newer mark lowers it, once the log has reached the offset at which append times went back.
    """
    end_offset = state.ends.log_end_offset
    if leader.back_offset > end_offset:
        return
    if state.timing.back_offset != leader.back_offset:
        is_newer = leader.back_offset > state.timing.back_offset
        state.replace_timing(state.timing._replace(back_offset=leader.back_offset))
    if is_newer:
        state.last_append_time_ms = leader.last_append_time_ms
    else:
        state.last_append_time_ms = later(state.last_append_time_ms, leader.last_append_time_ms)


def tells_more(state: LogState, leader: LeaderState) -> bool:
    """Returns whether a leader has sent times that this log's own batches do not show.

    They are those of records that the leader has deleted. A process that is killed must have
    written them down. Needs the append lock, before the largest event time is kept.
    """
    segments = state.version.segments
    if not any(segment.tail.size for segment in reversed(segments)):
        return True
    told = leader.max_event_time
    if told is None or later(told, state.largest_event.kept) == state.largest_event.kept:
        return False
    events = (segment.known.times.event for segment in reversed(segments))
    return not any(later(event, told) == event for event in events)
