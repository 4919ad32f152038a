"""Why a segment is kept, when it will be deleted, and what a round of retention would delete.

The module collects the facts of a partition's segments, which `storage/time/retention.py` judges,
and puts the result into words. It decides and changes nothing. A due time assumes that nothing is
appended until then. Unknown append times are None, and an explanation says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.instants import to_iso
from tidelog.storage.compaction import explain as explain_compaction
from tidelog.storage.time.corrections import is_behind
from tidelog.storage.time.retention import (
    BY_EVENT_TIME,
    BY_SIZE,
    BY_START,
    BY_TIME,
    counted_event_time,
    retention_schedule,
)
from tidelog.storage.time.rolling import Rolling, rolls_from
from tidelog.storage.time.timestamp import MIN_TIMESTAMP, exceeds, is_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.compaction.explain import Compacting
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.retention import (
        Candidate,
        PolicyCondition,
        Retention,
        SegmentSchedule,
    )

# What holds a segment: `SegmentExplanation.held_by`, None if the next round deletes it.
OLDER = "older segment"  # an older segment is kept, or deleted later
NOT_SEEN = "high watermark"  # consumers may not read all of it yet
EMPTY = "active and empty"
NO_POLICY = "no policy"
FLOOR = "retention.min.append.ms"  # a time policy would delete it, but it was written recently
GRACE = "retention.max.eventtime.grace.ms"  # expired by event time, but written recently
EVENT_TIME = "retention.max.eventtime.ms"  # waits for an event time
NO_EVENT_TIME = "no event time"
SIZE = "retention.bytes"  # the log is not large enough

# `SegmentExplanation.rolls_by`, if no setting ends the segment:
WRONG_CLOCK = "wrong clock"  # the clock was wrong in this segment
ADOPTED = "adopted"  # it is not known that this broker wrote all of it


class SegmentExplanation(NamedTuple):
    """One segment: its content and its future. Times are ms, None if there is none."""

    base_offset: int
    end_offset: int
    size: int
    is_active: bool
    first_time: int | None  # the first record time
    largest_time: int | None  # the largest record time
    event_time: int | None  # the largest event time, limited by append times
    first_append_time: int | None  # None: unknown
    last_append_time: int | None
    has_unknown_append_times: bool  # of some batch; the moment of its adoption is used
    lacks_times: bool  # some record has no time
    policy: str | None  # that will delete it without further appends; None: none
    due_ms: int | None  # the first time, now or later, at which a round deletes it
    due_event_time: int | None  # the partition's largest event time at which it expires
    held_by: str | None  # what it waits for, one of the constants above; None: due
    held_by_segment: int | None  # the base offset of the older segment that holds it
    sentence: str
    conditions: tuple[
        PolicyCondition, ...
    ] = ()  # what each policy needs, as if no older segment were there
    rolls_ms: int | None = None  # from then on any append ends it; None: closed, empty, or never
    rolls_by: str | None = None  # the setting that says so, WRONG_CLOCK or ADOPTED; None: closed
    judged_append_time: int | None = None  # what the last one counts as, after corrections
    compaction: str | None = None  # its role in compaction; None without compaction


class Going(NamedTuple):
    """What a round of retention would delete now."""

    segments: int
    records: int  # the number of readable offsets
    bytes: int
    policies: tuple[str, ...]  # the policies that delete them


class PartitionExplanation(NamedTuple):
    """One partition with the given settings."""

    topic: str
    partition: int
    now_ms: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size: int
    max_event_time: int | None
    last_append_time: int | None
    retention: Retention  # the retention settings that apply
    segments: tuple[SegmentExplanation, ...]
    going: Going  # what a round would delete now
    compacting: Compacting | None = None  # None: no compaction


class Moment(NamedTuple):
    """A log at one moment: its segments, its start and ends, and what is known of its times."""

    segments: tuple[Segment, ...]
    candidates: list[Candidate]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    max_event_time: int | None
    last_append_time: int | None
    rolling: Rolling
    begins_segment: bool = False  # the next append does, because the clock was wrong
    is_replicated: bool = False  # append times never go back by themselves
    compacting: Compacting | None = None


def explain(
    topic: str,
    partition: int,
    log: Moment,
    rules: Retention,
    now_ms: int,
    clock_ms: int | None = None,
) -> PartitionExplanation:
    """Explains a partition's segments; reads their unknown times. Raises OSError.

    Retention deletes by `now_ms`. Segments end by `clock_ms`, what the clock shows, if that differs.
    """
    candidates = log.candidates
    expected = retention_schedule(
        candidates,
        rules,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        max_event_time=log.max_event_time,
    )
    explained = []
    before: SegmentExplanation | None = None
    for segment, candidate, schedule in zip(log.segments, candidates, expected, strict=True):
        before = _segment(segment, candidate, schedule, rules, now_ms, before)
        explained.append(before)
    explained[-1] = _with_rolling(explained[-1], log, now_ms if clock_ms is None else clock_ms)
    if log.compacting is not None:
        explained = _with_compaction(explained, log.segments, log.compacting)
    return PartitionExplanation(
        topic,
        partition,
        now_ms,
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        sum(candidate.size for candidate in candidates),
        counted_event_time(candidates, rules, log.max_event_time),
        log.last_append_time,
        rules,
        tuple(explained),
        going(explained, now_ms, log.log_start_offset),
        log.compacting,
    )


def _with_rolling(explained: SegmentExplanation, log: Moment, clock_ms: int) -> SegmentExplanation:
    """Adds why the active segment has not ended, and when it does."""
    rolling = log.rolling
    if not explained.is_active or not explained.size:
        return explained
    roll_ms = rolls_from(log.segments[-1].times, rolling)
    rolls_by, setting = rolling.setting, f"({rolling.setting}={rolling.segment_ms})"
    goes_back = not log.is_replicated and is_behind(log.last_append_time, clock_ms)
    if log.begins_segment or goes_back:
        roll_ms, rolls_by, setting = clock_ms, WRONG_CLOCK, "(the clock was wrong)"
    elif log.segments[-1].log.is_ended:
        roll_ms, rolls_by = clock_ms, ADOPTED
        setting = "(it is not known that this broker wrote all of it)"
    if explained.held_by is None:
        sentence = "It is active: the round begins a new segment first."
    elif roll_ms is None:
        sentence = f"It is active, and never ends by age {setting}."
    else:
        is_old = is_due(roll_ms, clock_ms)
        when = "the next append" if is_old else f"an append at {_when(roll_ms)}"
        sentence = f"It is active; {when} begins a new segment {setting}."
    return explained._replace(
        sentence=f"{explained.sentence} {sentence}", rolls_ms=roll_ms, rolls_by=rolls_by
    )


def _with_compaction(
    explained: Sequence[SegmentExplanation], segments: Sequence[Segment], compacting: Compacting
) -> list[SegmentExplanation]:
    """Adds the effect of compaction to each segment."""
    explanations = explain_compaction.of_segments(segments, compacting)
    return [
        each._replace(compaction=what, sentence=f"{each.sentence} {sentence}")
        for each, (what, sentence) in zip(explained, explanations, strict=True)
    ]


def going(segments: Sequence[SegmentExplanation], now_ms: int, log_start_offset: int) -> Going:
    """Returns the sum of what is due."""
    due = [s for s in segments if s.due_ms is not None and is_due(s.due_ms, now_ms)]
    return Going(
        len(due),
        sum(
            s.end_offset - max(s.base_offset, log_start_offset)
            for s in due
            if s.end_offset > log_start_offset
        ),
        sum(s.size for s in due),
        tuple(dict.fromkeys(s.policy for s in due if s.policy is not None)),
    )


def _segment(
    segment: Segment,
    candidate: Candidate,
    schedule: SegmentSchedule,
    rules: Retention,
    now_ms: int,
    before: SegmentExplanation | None,
) -> SegmentExplanation:
    end_offset, size, _ = candidate
    times = segment.times  # an empty segment's own times, not the inherited ones
    waits = tuple(schedule.waits())
    held_by, holder, sentence = _held(schedule, waits, rules, now_ms, before, is_empty=not size)
    if times.has_unknown and size:
        unknown_end = segment.append_times.unknown_end(end_offset)
        adopted_ms = segment.known.adoptions.time_of(unknown_end - 1)
        sentence += (
            " Of some of its batches nobody knows when they were appended: they count as appended"
            f" when this broker found them, at {_when(adopted_ms)}."
        )
    judged = candidate.times() if size else times
    if judged.last_append is not None and judged.last_append != times.last_append:
        sentence += (
            " A clock was wrong when it was written: its last append counts as"
            f" {_when(judged.last_append)}."
        )
    return SegmentExplanation(
        segment.base_offset,
        end_offset,
        size,
        segment.log.is_active,
        times.first,
        times.largest,
        judged.event,
        segment.append_times.at(segment.base_offset) if size else None,
        segment.append_times.at(end_offset - 1) if size else None,
        times.has_unknown,
        times.has_missing,
        schedule.policy,
        schedule.due_ms,
        next((w.event_time for w in waits if w.policy == BY_EVENT_TIME), None),
        held_by,
        holder,
        sentence,
        tuple(_from_now(wait, now_ms) for wait in waits),
        judged_append_time=judged.last_append,
    )


def _from_now(wait: PolicyCondition, now_ms: int) -> PolicyCondition:
    """Returns a policy's condition; what it needs no time for is due now."""
    return wait._replace(due_ms=now_ms) if wait.due_ms == MIN_TIMESTAMP else wait


# --- words ---------------------------------------------------------------------------------------


def _held(
    schedule: SegmentSchedule,
    waits: Sequence[PolicyCondition],
    rules: Retention,
    now_ms: int,
    before: SegmentExplanation | None,
    *,
    is_empty: bool,
) -> tuple[str | None, int | None, str]:
    """Returns what holds a segment: a constant, the older segment if it is that, and a sentence."""
    if schedule.is_held:
        if is_empty:
            return EMPTY, None, "It is active and empty: there is nothing to delete."
        conditions = "".join(f" {_sentence(wait, rules, now_ms, 'would delete')}" for wait in waits)
        return NOT_SEEN, None, f"It is kept until consumers have been shown all of it.{conditions}"
    is_behind = (
        before is not None
        and before.held_by is not None
        and _waits_for(before, schedule.due_ms, waits)
    )
    deletes = "would delete" if is_behind else "deletes"
    sentences = " ".join(_sentence(wait, rules, now_ms, deletes) for wait in waits)
    if before is not None and is_behind:
        holder = before.base_offset if before.held_by_segment is None else before.held_by_segment
        when = "stays" if schedule.due_ms is None else f"goes at {_when(schedule.due_ms)}"
        text = f"Segments go oldest first, and the one at {holder} {when}. {sentences}"
        return OLDER, holder, text.rstrip()
    if not waits:
        return NO_POLICY, None, "No policy is set that would delete it."
    if schedule.due_ms is None:
        return _hold(waits[-1]), None, sentences
    if is_due(schedule.due_ms, now_ms):
        return None, None, sentences
    first = next(wait for wait in waits if wait.policy == schedule.policy)
    return _hold(first), None, sentences


def _floor(rules: Retention) -> str:
    return f"{FLOOR}={rules.floor_ms} after its last append"


def _waits_for(
    before: SegmentExplanation, due_ms: int | None, waits: Sequence[PolicyCondition]
) -> bool:
    """Returns whether only the segment before this one delays its deletion."""
    own = [wait.due_ms for wait in waits if wait.due_ms is not None]
    if due_ms is None:
        return before.due_ms is None and bool(own)
    return before.due_ms == due_ms and exceeds(due_ms, min(own))


def _hold(wait: PolicyCondition) -> str:
    """Returns the name of what a policy waits for."""
    if wait.is_floored:
        return FLOOR
    if wait.policy != BY_EVENT_TIME:
        return wait.policy
    if wait.due_ms is not None:
        return GRACE
    return NO_EVENT_TIME if wait.event_time is None else EVENT_TIME


def _sentence(wait: PolicyCondition, rules: Retention, now_ms: int, deletes: str) -> str:
    """Describes what one policy does or waits for, or would do without an older segment."""
    policy, due_ms, event_time, growth, is_floored = wait
    due = due_ms is not None and is_due(due_ms, now_ms)
    if policy == BY_START:
        return "It lies before the log start offset, and goes with the next round."
    if policy == BY_SIZE:
        setting = f"retention.bytes={rules.retention_bytes}"
        if due:
            return f"{setting} {deletes} it: without it the log is still that large."
        return f"{setting} {deletes} it when the log has grown by {growth} bytes."
    if policy == BY_TIME:
        setting = f"retention.ms={rules.retention_ms}"
        if due_ms is None:
            return f"{setting} does not apply: nobody knows how old it is."
        if is_floored and not due:
            return f"{setting} {deletes} it at {_when(due_ms)}, {_floor(rules)}."
        return (
            f"{setting} {deletes} it with the next round."
            if due
            else f"{setting} {deletes} it at {_when(due_ms)}."
        )
    setting = f"retention.max.eventtime.ms={rules.event_ms}"
    if event_time is None:
        return f"{setting} does not apply: no record up to the next segments' has an event time."
    if due_ms is None:
        return f"{setting} {deletes} it when an event time reaches {_when(event_time)}."
    if due:
        return f"{setting} {deletes} it with the next round."
    if is_floored:
        return f"{setting} {deletes} it at {_when(due_ms)}, {_floor(rules)}."
    return (
        f"{setting} {deletes} it at {_when(due_ms)},"
        f" retention.max.eventtime.grace.ms={rules.grace_ms} after its last append."
    )


def _when(time_ms: int) -> str:
    """Formats a time for people."""
    return to_iso(time_ms)
