"""Append times of a log that count as later, because the clock that gave them was behind.

The clock may have been this broker's, or that of a leader before. Where append times stood still because
the clock was behind them, offsets say what it concerns: the times do not lie where the clock was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.log.times import judging
from tidelog.storage.time.corrections import (
    NO_END_OFFSET,
    WrittenBehind,
    is_behind,
    leader_behind,
    with_correction,
)

if TYPE_CHECKING:
    from tidelog.storage.log.state import LogState
    from tidelog.storage.time.corrections import Correction, Mark


def next_mark(state: LogState) -> Mark:
    """Returns the mark of a correction that is made now.

    Only a leader with followers counts its corrections. A log without a role may have another leader,
    whose corrections replace this one. Those of an only replica are compared with none.
    """
    if not state.leadership.is_assigned:
        return state.timing.mark
    return state.timing.mark.next_in(state.leadership.epoch)


def note_standstill(state: LogState, now_ms: int) -> None:
    """Notes from where to where append times stand still because the clock is behind them.

    Needs the append lock.
    """
    end_offset, known = state.ends.log_end_offset, state.timing.appended_behind
    if is_behind(state.last_append_time_ms, now_ms):
        start_offset = end_offset if known is None else known.start_offset
        known = WrittenBehind(start_offset, NO_END_OFFSET, 0)
    elif known is not None:
        known = known._replace(end_offset=min(known.end_offset, end_offset))
    state.replace_timing(state.timing._replace(appended_behind=known))


def correct(state: LogState, written: WrittenBehind, now_ms: int) -> None:
    """Counts as later what was appended by a clock that was behind; needs the append lock."""
    correction = leader_behind(written, state.ends.log_end_offset, now_ms)
    if correction.start_offset < correction.end_offset:
        count_later(state, correction, with_correction(state.timing.corrections, correction))


def count_later(
    state: LogState, correction: Correction, corrections: tuple[Correction, ...]
) -> None:
    """Counts what a correction concerns as later, with these corrections; needs the append lock."""

    def later(offset: int, time_ms: int) -> int:
        is_before = 0 <= offset < correction.start_offset
        return time_ms if is_before else correction.apply(time_ms)

    if state.producers is not None:
        state.producers.correct(later)
    timing = state.timing
    state.replace_timing(
        timing._replace(
            corrections=judging.held(state, corrections),  # none if the log is empty
            adoptions=timing.adoptions.corrected(correction.apply, correction.start_offset),
            mark=next_mark(state),
        )
    )
    state.begins_segment = True
