"""What an append time counts as after the clock that gave it turned out to be wrong.

`.appendtimes` keeps what the clock showed, exactly. When the clock is corrected, a partition notes
a correction: which append times, before which offset, count as what. Every policy judges a record
by its append time with all later corrections applied, in their order. A record never counts as
written later than the correction itself.

- The clock went back: what was written before cannot have been written later than now.
- The clock went forward, and is trusted: what was written while it was behind was written later
  than its append time says, by as much as the clock was behind.

A forward step concerns only append times that the clock showed while it was behind. So records
written before it fell behind keep their own times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.event_time import capped
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, earlier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.time.segment_times import SegmentTimes

# A clock is adjusted by seconds as a matter of course. Up to here, append times stand still until
# the clock has caught up with them; beyond it, the clock was wrong.
TOLERANCE_MS = 10_000

NO_END_OFFSET = 2**63 - 1
# The times in committed offsets count by each correction since they were written: with two remembered, some
# expire early (`tests/simulation/clocks`, "only two corrections are remembered").
_MOST_CORRECTIONS = 32
_MOST_STEPS = 32
# How far after `since_ms` the step back with which the clock fell behind may have been noted.
_BEGINS_WITHIN_MS = 3 * TOLERANCE_MS


class Correction(NamedTuple):
    """What append times count as that a wrong clock gave.

    It concerns the batches from `start_offset` on, before `end_offset`, with append times from
    `since_ms` to `until_ms`. They count as `shift_ms` later, but at most as `to_ms`.
    """

    start_offset: int
    end_offset: int
    since_ms: int
    until_ms: int
    shift_ms: int
    to_ms: int

    def apply(self, append_time_ms: int) -> int:
        """Returns what an append time in these offsets counts as."""
        if not self.since_ms <= append_time_ms <= self.until_ms:
            return append_time_ms
        judged = min(append_time_ms + self.shift_ms, self.to_ms)
        return 0 if judged == NO_TIMESTAMP else judged


class Mark(NamedTuple):
    """Which correction of a partition is the last one; the later of two marks is the larger.

    Replicas compare it: only a newer mark may lower what a replica knows of times.
    """

    epoch: int = 0  # the leader epoch in which it was made
    number: int = 0  # how many the partition had before and with it; 0: none

    def next_in(self, epoch: int) -> Mark:
        """Returns the mark of a correction that is made now, in a leader epoch."""
        return Mark(max(epoch, self.epoch), self.number + 1)


NO_MARK = Mark()


class ForwardStep(NamedTuple):
    """A trusted step of the clock forward: readings of the clock that was behind count as later."""

    since_ms: int  # the first reading after the clock fell behind
    until_ms: int  # the last one before it was corrected
    shift_ms: int  # by how much it was behind
    to_ms: int  # what it showed when it was corrected


class ClockHistory(NamedTuple):
    """The last trusted steps of the clock forward, each with its number, in their order.

    A partition notes the id and the number of the last step that it has taken into account. Steps
    with larger numbers are pending. With another id, the numbers were counted anew.
    """

    history_id: str
    steps: tuple[tuple[int, ForwardStep], ...] = ()


NO_HISTORY = ClockHistory("")


def pending_steps(
    history: ClockHistory, known_id: str, number: int
) -> tuple[tuple[int, ForwardStep], ...]:
    """Returns the steps that a partition has not taken into account, with their numbers.

    It has those up to `number` of the history `known_id`.
    """
    is_known = history.history_id == known_id
    return tuple(each for each in history.steps if not is_known or each[0] > number)


def with_step(history: ClockHistory, step: ForwardStep) -> ClockHistory:
    """Returns a history with one more step; of too many, the two oldest are joined.

    A log that has noted neither then counts what they concern as the latest that either could mean.
    """
    steps = (*history.steps, (last_number(history) + 1, step))
    if len(steps) > _MOST_STEPS:
        (_, one), (number, other), *rest = steps
        joined = ForwardStep(
            min(one.since_ms, other.since_ms),
            max(one.until_ms, other.until_ms),
            min(one.shift_ms + other.shift_ms, MAX_TIMESTAMP),
            max(one.to_ms, other.to_ms),
        )
        steps = ((number, joined), *rest)
    return history._replace(steps=steps)


def last_number(history: ClockHistory) -> int:
    """Returns the number of the last step; 0 if there was none."""
    return history.steps[-1][0] if history.steps else 0


def is_stale(history: ClockHistory, known_id: str, number: int) -> bool:
    """Returns whether a log has noted a later step of the clock than its history had at a reading."""
    return history.history_id == known_id and number > last_number(history)


def is_behind(last_append_time_ms: int | None, now_ms: int) -> bool:
    """Returns whether the clock went back, since an append, by more than it may."""
    return last_append_time_ms is not None and last_append_time_ms - now_ms > TOLERANCE_MS


def step_back(end_offset: int, now_ms: int) -> Correction:
    """Returns the correction of a step back: what lies before an offset was written by now."""
    return Correction(0, end_offset, now_ms, MAX_TIMESTAMP, 0, now_ms)


def step_forward(start_offset: int, end_offset: int, step: ForwardStep) -> Correction:
    """Returns the correction of a step forward: the clock was behind when it stamped these offsets.

    Where append times stood still, what was written then has one that the clock had not reached yet. And
    the clock may have been further than the last reading tells, by the tolerance.
    """
    until_ms = min(step.until_ms + TOLERANCE_MS, MAX_TIMESTAMP)
    return Correction(start_offset, end_offset, step.since_ms, until_ms, step.shift_ms, step.to_ms)


class WrittenBehind(NamedTuple):
    """Batches that a leader has appended whose clock was behind."""

    start_offset: int
    end_offset: int  # NO_END_OFFSET while that leader appends
    behind_ms: int  # the most, in whole steps of ten seconds


def with_written(known: WrittenBehind | None, start_offset: int, behind_ms: int) -> WrittenBehind:
    """Returns what is known with what a leader appends, from an offset on, whose clock is so far behind.

    All that lies between counts as written by the clock that was furthest behind. That is rounded up, so
    that it rarely changes: a log notes each change durably.
    """
    behind_ms = -(-behind_ms // TOLERANCE_MS) * TOLERANCE_MS
    if known is not None:
        start_offset = min(known.start_offset, start_offset)
        behind_ms = max(known.behind_ms, behind_ms)
    return WrittenBehind(start_offset, NO_END_OFFSET, behind_ms)


def written_below(known: WrittenBehind | None, end_offset: int) -> WrittenBehind | None:
    """Returns what of it lies below an offset, from which on others append."""
    if known is None or known.start_offset >= end_offset:
        return None
    return known._replace(end_offset=min(known.end_offset, end_offset))


def leader_behind(written: WrittenBehind, end_offset: int, now_ms: int) -> Correction:
    """Returns the correction of what a leader has appended whose clock was behind.

    Append times came from that clock, or stood still because it was behind them. In both cases they are
    no more than `behind_ms` too early. The log ends at `end_offset`.
    """
    start_offset, written_end, behind_ms = written
    end_offset = min(written_end, end_offset)
    return Correction(start_offset, end_offset, MIN_TIMESTAMP, now_ms, behind_ms, now_ms)


def after_step_back(
    corrections: Sequence[Correction], end_offset: int, now_ms: int
) -> tuple[Correction, ...]:
    """Returns the corrections with one more: what lies before an offset was written by now."""
    return with_correction(corrections, step_back(end_offset, now_ms))


def after_step_forward(
    corrections: Sequence[Correction], end_offset: int, step: ForwardStep
) -> tuple[Correction, ...]:
    """Returns the corrections with one more: the clock was behind until this offset.

    A step back to a time that the clock showed while it was behind was made that much later too.
    Records before it were not written by the clock that was behind.
    """
    starts, moved = [], []
    for correction in corrections:
        if correction.shift_ms == 0 and step.since_ms <= correction.to_ms <= step.until_ms:
            if correction.to_ms - step.since_ms <= _BEGINS_WITHIN_MS:
                starts.append(correction.end_offset)
            to_ms = min(correction.to_ms + step.shift_ms, step.to_ms)
            moved.append(correction._replace(since_ms=to_ms, to_ms=to_ms))
        else:
            moved.append(correction)
    start_offset = min(starts, default=0)
    if start_offset >= end_offset:
        return tuple(moved)
    return with_correction(moved, step_forward(start_offset, end_offset, step))


def with_correction(
    corrections: Sequence[Correction], correction: Correction
) -> tuple[Correction, ...]:
    """Returns the corrections with one more."""
    return _limited((*corrections, correction))


def corrections_within(
    corrections: Sequence[Correction], log_start_offset: int, log_end_offset: int
) -> tuple[Correction, ...]:
    """Returns the corrections as far as they concern what a log still holds."""
    return tuple(
        each._replace(end_offset=min(each.end_offset, log_end_offset))
        for each in corrections
        if each.end_offset > log_start_offset and each.start_offset < log_end_offset
    )


def last_step_back(corrections: Sequence[Correction], end_offset: int) -> int:
    """Returns the offset of the last step back at an offset or before it; 0: none is known."""
    ends = [each.end_offset for each in corrections if each.shift_ms == 0]
    return max((end for end in ends if end <= end_offset), default=0)


def judged(corrections: Sequence[Correction], offset: int, append_time_ms: int) -> int:
    """Returns what the append time of the batch with this offset counts as."""
    for each in corrections:
        if each.start_offset <= offset < each.end_offset:
            append_time_ms = each.apply(append_time_ms)
    return append_time_ms


def bound_at(corrections: Sequence[Correction], offset: int) -> int:
    """Returns by when the batch with this offset was written at the latest, by steps back alone."""
    return min(
        (
            each.to_ms
            for each in corrections
            if each.shift_ms == 0 and each.start_offset <= offset < each.end_offset
        ),
        default=MAX_TIMESTAMP,
    )


def event_limit_at(
    corrections: Sequence[Correction], offset: int, append_time_ms: int, slack_ms: int
) -> int:
    """Returns the largest event time that the batch with this offset counts as."""
    return capped(min(append_time_ms, bound_at(corrections, offset)), slack_ms)


def bounded_event(
    corrections: Sequence[Correction], offset: int, event: int | None, slack_ms: int
) -> int | None:
    """Returns what the event time of the batch with this offset counts as; None: it has none."""
    if event is None:
        return None
    return min(event, event_limit_at(corrections, offset, MAX_TIMESTAMP, slack_ms))


def changes_at(corrections: Sequence[Correction], offset: int) -> list[ForwardStep]:
    """Returns what has changed the meaning of times that the clock gave for an offset, in order.

    A time in a record was read before the record was appended. So the steps forward that were noted
    between the two come last. They concern no time that was read after them.
    """
    own = [each for each in corrections if each.start_offset <= offset < each.end_offset]
    before = [each for each in corrections if each.shift_ms and each.end_offset <= offset]
    return [ForwardStep(*each[2:]) for each in (*own, *reversed(before))]


def judged_times(
    times: SegmentTimes,
    corrections: Sequence[Correction],
    base_offset: int,
    end_offset: int,
    slack_ms: int,
    adopted_ms: int = MIN_TIMESTAMP,
) -> SegmentTimes:
    """Returns what the times of a segment from `base_offset` to `end_offset` count as.

    `slack_ms` is how far beyond its append time an event time counts. Batches with unknown append
    times count as appended at `adopted_ms`, or earlier. The result is the same object where no
    correction concerns the segment. Where single records are not known, their times count as the
    latest that is possible, so nothing is deleted too early.
    """
    stored = times.last_append
    if stored is None:
        return times
    span = _Span(times.created, stored)
    for each in corrections:
        if each.start_offset < end_offset and base_offset < each.end_offset:
            is_whole = each.start_offset <= base_offset and end_offset <= each.end_offset
            span = span.corrected(each, is_whole=is_whole)
    first, last, is_later, is_bounded = span
    if times.has_unknown and last != stored:
        last = max(last, adopted_ms)
    # What was counted under a larger limit, while the clock was ahead, counts under today's.
    event_limit = capped(last, slack_ms)
    is_capped = is_bounded and times.event is not None and event_limit < times.event
    if (first, last) == (times.created, stored) and not is_later and not is_capped:
        return times
    corrected = times.copy()
    corrected.created, corrected.last_append = first, last
    if is_later:
        corrected.aging = last  # the record times may be the clock's own, and as wrong as it was
        if times.largest is not None:
            corrected.event = min(times.largest, event_limit)
        return corrected
    if times.aging is not None:
        corrected.aging = min(times.aging, last)
    if times.event is not None:
        corrected.event = min(times.event, event_limit)
    return corrected


class _Span(NamedTuple):
    """What the append times of a segment count as, from the first to the last."""

    first_ms: int | None  # None: unknown
    last_ms: int  # the latest that is possible
    is_later: bool = False  # some may count as later than they were stored
    is_bounded: bool = False  # all were written by the time of a step back

    def corrected(self, correction: Correction, *, is_whole: bool) -> _Span:
        """Returns them with a correction of the whole segment, or of a part of it."""
        first, last, is_later, is_bounded = self
        if correction.shift_ms == 0 and not is_whole:
            return self  # of what else it has, the moment is not known: it may be later
        latest = _latest(correction, first, last)
        return _Span(
            correction.apply(first) if is_whole and first is not None else first,
            latest if is_whole else max(latest, last),  # the last batch may not be concerned
            is_later or _shifts_some(correction, first, last),
            is_bounded or correction.shift_ms == 0,
        )


def with_deleted(
    known: Sequence[Correction], leaders: Sequence[Correction], log_start_offset: int
) -> tuple[Correction, ...]:
    """Returns the leader's corrections, and those that it has forgotten with what it deleted.

    `log_start_offset` is the leader's. A follower may still hold batches before it, which must not
    count as later than they did: for these it keeps the corrections that are `known` to it.
    """
    result: tuple[Correction, ...] = ()
    for each in known:
        if each.end_offset <= log_start_offset and each not in leaders:
            result = _limited((*result, each))
    for each in leaders:
        result = _limited((*result, each))
    return result


def counted_event(times: SegmentTimes, judged: SegmentTimes) -> int | None:
    """Returns a segment's event time as far as it expires others: the least that it may count as.

    `judged` is what its `times` count as, which is the latest that is possible.
    """
    return earlier(times.event, judged.event)


def _shifts_some(correction: Correction, first_ms: int | None, last_ms: int) -> bool:
    """Returns whether append times from the first to the last may count as later."""
    least = correction.since_ms if first_ms is None else max(first_ms, correction.since_ms)
    return correction.shift_ms > 0 and min(last_ms, correction.until_ms) >= least


def _latest(correction: Correction, first_ms: int | None, last_ms: int) -> int:
    """Returns the latest that any append time from the first to the last counts as."""
    if last_ms <= correction.until_ms:
        return correction.apply(last_ms)
    if _shifts_some(correction, first_ms, last_ms):
        return max(correction.apply(correction.until_ms), last_ms)
    return last_ms


def _limited(corrections: Sequence[Correction]) -> tuple[Correction, ...]:
    """Returns the corrections; of too many, the two oldest are joined.

    What they concern then counts as written at the latest that either could mean.
    """
    if len(corrections) <= _MOST_CORRECTIONS:
        return tuple(corrections)
    one, other, *rest = corrections
    joined = Correction(
        min(one.start_offset, other.start_offset),
        max(one.end_offset, other.end_offset),
        min(one.since_ms, other.since_ms),
        max(one.until_ms, other.until_ms),
        one.shift_ms + other.shift_ms,
        max(one.to_ms, other.to_ms),
    )
    return joined, *rest
