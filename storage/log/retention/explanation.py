"""Why a segment is still there and when it will go, and what a round of retention would delete.

Facts of a partition's segments, judged by `timestamps`; here they are only gathered and put into
words. Nothing is decided or changed. "When" means: if nothing is appended until then. Append times that
nobody knows are None, and an explanation says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.instants import to_iso
from storage.compaction import explain as explain_compaction
from storage.time.retention import BY_EVENT_TIME, BY_SIZE, BY_START, BY_TIME, retention_schedule
from storage.time.timestamp import exceeds, is_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.compaction.explain import Compacting
    from storage.segment.segment import Segment
    from storage.time.retention import Candidate, Retention, SegmentSchedule, Wait

# What holds a segment: `SegmentExplanation.held_by`. One that goes with the next round has None.
OLDER = "older segment"  # one before it stays, or goes later
NOT_SEEN = "high watermark"  # consumers have not been shown all of it
EMPTY = "active and empty"
NO_POLICY = "no policy"
AGE = "retention.ms"  # not old enough
GRACE = "retention.max.eventtime.grace.ms"  # outdated, and written not long ago
EVENT_TIME = "retention.max.eventtime.ms"  # waits for an event time
NO_EVENT_TIME = "no event time"
SIZE = "retention.bytes"  # the log is not large enough


class SegmentExplanation(NamedTuple):
    """One segment: what it holds, and what becomes of it. Times are ms, None where there is none."""

    base_offset: int
    end_offset: int
    size: int
    is_active: bool
    first_time: int | None  # the first record time
    largest_time: int | None  # the largest record time
    event_time: int | None  # the largest, each counted at most a bounded way beyond its append time
    first_append_time: int | None  # None: nobody knows
    last_append_time: int | None
    has_unknown_append_times: bool  # of some batch of it nobody knows; its file's date stands in
    lacks_times: bool  # some record has no time
    policy: str | None  # that will delete it as things are; None: none will
    due_ms: int | None  # the first moment, now or later, at which a round deletes it
    due_event_time: int | None  # the partition's largest event time by which event time deletes it
    held_by: str | None  # what it waits for, one of the constants above; None: the next round
    held_by_segment: int | None  # the base offset of the older one that holds it
    sentence: str
    compaction: str | None = None  # what it is to compaction; None where nothing is compacted


class Going(NamedTuple):
    """What a round of retention would delete now."""

    segments: int
    records: int  # offsets that can be read
    bytes: int
    policies: tuple[str, ...]  # by which


class PartitionExplanation(NamedTuple):
    """One partition under the given settings."""

    topic: str
    partition: int
    now_ms: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size: int
    max_event_time: int | None
    last_append_time: int | None
    retention: Retention  # the settings it goes by
    segments: tuple[SegmentExplanation, ...]
    going: Going  # with a round now
    compacting: Compacting | None = None  # None: nothing is compacted


class Moment(NamedTuple):
    """A log at one moment: its segments, where it starts and ends, what is known of its times."""

    segments: tuple[Segment, ...]
    candidates: list[Candidate]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    max_event_time: int | None
    last_append_time: int | None
    compacting: Compacting | None = None


def explain(
    topic: str, partition: int, log: Moment, rules: Retention, now_ms: int
) -> PartitionExplanation:
    """Explain a partition's segments; reads what is not known of their times. Raises OSError."""
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
        log.max_event_time,
        log.last_append_time,
        rules,
        tuple(explained),
        going(explained, now_ms, log.log_start_offset),
        log.compacting,
    )


def _with_compaction(
    explained: Sequence[SegmentExplanation], segments: Sequence[Segment], compacting: Compacting
) -> list[SegmentExplanation]:
    """Add what compaction does to each segment."""
    told = explain_compaction.of_segments(segments, compacting)
    return [
        each._replace(compaction=what, sentence=f"{each.sentence} {sentence}")
        for each, (what, sentence) in zip(explained, told, strict=True)
    ]


def going(segments: Sequence[SegmentExplanation], now_ms: int, log_start_offset: int) -> Going:
    """Add up what is due."""
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
    times = segment.times  # of one that is empty not those by which it goes
    held_by, holder, sentence = _held(schedule, rules, now_ms, before, is_empty=not size)
    if times.has_unknown and size:
        sentence += (
            " Of some of its batches nobody knows when they were appended:"
            " there the date of the file counts."
        )
    return SegmentExplanation(
        segment.base_offset,
        end_offset,
        size,
        segment.is_active,
        times.first,
        times.largest,
        times.event,
        segment.append_times.first_time if size else None,
        segment.append_times.at(end_offset - 1) if size else None,
        times.has_unknown,
        times.has_missing,
        schedule.policy,
        schedule.due_ms,
        next((w.event_time for w in schedule.waits if w.policy == BY_EVENT_TIME), None),
        held_by,
        holder,
        sentence,
    )


# --- words ---------------------------------------------------------------------------------------


def _held(
    schedule: SegmentSchedule,
    rules: Retention,
    now_ms: int,
    before: SegmentExplanation | None,
    *,
    is_empty: bool,
) -> tuple[str | None, int | None, str]:
    """Say what holds a segment: a constant, the older segment if that is it, and a sentence."""
    if schedule.is_held:
        if is_empty:
            return EMPTY, None, "It is active and empty: there is nothing to delete."
        return NOT_SEEN, None, "It is kept until consumers have been shown all of it."
    is_behind = before is not None and before.held_by is not None and _waits_for(before, schedule)
    deletes = "would delete" if is_behind else "deletes"
    waits = " ".join(_sentence(wait, rules, now_ms, deletes) for wait in schedule.waits)
    if before is not None and is_behind:
        holder = before.base_offset if before.held_by_segment is None else before.held_by_segment
        when = "stays" if schedule.due_ms is None else f"goes at {_when(schedule.due_ms)}"
        text = f"Segments go oldest first, and the one at {holder} {when}. {waits}"
        return OLDER, holder, text.rstrip()
    if not schedule.waits:
        return NO_POLICY, None, "No policy is set that would delete it."
    if schedule.due_ms is None:
        return _hold(schedule.waits[-1]), None, waits
    if is_due(schedule.due_ms, now_ms):
        return None, None, waits
    first = next(wait for wait in schedule.waits if wait.policy == schedule.policy)
    return _hold(first), None, waits


def _waits_for(before: SegmentExplanation, schedule: SegmentSchedule) -> bool:
    """Tell whether a segment could go sooner, but for the one before it."""
    own = [wait.due_ms for wait in schedule.waits if wait.due_ms is not None]
    if schedule.due_ms is None:
        return before.due_ms is None and bool(own)
    return before.due_ms == schedule.due_ms and exceeds(schedule.due_ms, min(own))


def _hold(wait: Wait) -> str:
    """Name what a policy waits for."""
    if wait.policy != BY_EVENT_TIME:
        return wait.policy
    if wait.due_ms is not None:
        return GRACE
    return NO_EVENT_TIME if wait.event_time is None else EVENT_TIME


def _sentence(wait: Wait, rules: Retention, now_ms: int, deletes: str) -> str:
    """Say what one policy does or waits for; it only would where an older segment is in the way."""
    policy, due_ms, event_time, growth = wait
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
    return (
        f"{setting} {deletes} it at {_when(due_ms)},"
        f" retention.max.eventtime.grace.ms={rules.grace_ms} after its last append."
    )


def _when(time_ms: int) -> str:
    """Write a time as people read it; in milliseconds where no calendar reaches."""
    return to_iso(time_ms) or f"{time_ms} ms"
