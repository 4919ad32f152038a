"""What the append times of a log count as: after corrections of the clock, and where unknown.

`storage/time/corrections.py` and `adoption.py` have the rules; this module applies them to the
segments of one log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.time.adoption import adopt as with_adopted
from tidelog.storage.time.corrections import corrections_within, judged_times

if TYPE_CHECKING:
    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.adoption import Adoptions
    from tidelog.storage.time.corrections import Correction
    from tidelog.storage.time.segment_times import SegmentTimes


def judged(state: LogState, segment: Segment, times: SegmentTimes) -> SegmentTimes:
    """Returns what the times of a segment count as, after all corrections of the clock."""
    if not state.timing.corrections:
        return times
    base_offset, end_offset = segment.base_offset, segment.tail.end_offset
    return judged_times(
        times,
        state.timing.corrections,
        base_offset,
        end_offset,
        state.rules.event_slack_ms,
        segment.known.adoptions.latest_within(base_offset, end_offset),
    )


def judged_times_of(state: LogState, segment: Segment) -> SegmentTimes:
    """Returns what the times of a segment count as; reads unknown ones. Raises OSError."""
    return judged(state, segment, segment.times)


def held(state: LogState, corrections: tuple[Correction, ...]) -> tuple[Correction, ...]:
    """Returns the corrections of what the log still holds; needs the append lock.

    Segments before the log's start are judged, too, until they are deleted.
    """
    if not corrections:
        return corrections
    first_offset = state.version.segments[0].base_offset
    return corrections_within(corrections, first_offset, state.ends.log_end_offset)


def forget_corrections(state: LogState) -> None:
    """Forgets corrections of what the log does not hold any more; needs the append lock."""
    timing = state.timing
    if timing.corrections:
        corrections = held(state, timing.corrections)
        state.replace_timing(timing._replace(corrections=corrections))


def adopt(state: LogState, first_offset: int, end_offset: int, now_ms: int) -> None:
    """Counts batches with unknown append times as appended now; needs the append lock.

    They are the last of the log. Batches just before them that are adopted too count as
    adopted together with them.
    """
    adoptions = state.timing.adoptions
    ranges = adoptions.ranges
    if ranges and ranges[-1].end_offset == first_offset:
        ranges = ranges[:-1]
    use_adoptions(state, adoptions._replace(ranges=with_adopted(ranges, end_offset, now_ms)))


def use_adoptions(state: LogState, adoptions: Adoptions) -> None:
    """Replaces the moments of adoption; needs the append lock."""
    state.replace_timing(state.timing._replace(adoptions=adoptions))
