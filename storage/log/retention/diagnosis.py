"""What is wrong with the times of a log, each in a sentence, with a figure and what helps.

`diagnose` takes facts about a log, open or closed, and changes nothing. The rules that compare times
are in `storage/time`. A healthy log has no findings: what a setting allows is none. Segments whose
times are not known, because they were not read, are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.instants import to_duration, to_iso, to_span
from tidelog.config.setting import LONG_MAX
from tidelog.storage.time.append_time import ahead
from tidelog.storage.time.arrivals import is_within, stored_unit_mismatch, usual_range
from tidelog.storage.time.corrections import is_behind
from tidelog.storage.time.event_time import event_time_ahead
from tidelog.storage.time.retention import (
    newest_counted,
    outlived,
    retention_of,
    retention_schedule,
)
from tidelog.storage.time.rolling import longest_age, never_ends, rolling_of, waits_for_append
from tidelog.storage.time.stamping import is_refused, rules_of
from tidelog.storage.time.timestamp import exceeds, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.time.arrivals import UnitMismatch
    from tidelog.storage.time.corrections import Correction
    from tidelog.storage.time.retention import Candidate, Retention, SegmentSchedule
    from tidelog.storage.time.segment_times import SegmentTimes
    from tidelog.storage.time.stamping import Rules

# What was found: `Finding.kind`.
CANNOT_ROLL = "segment cannot roll"
EVENT_TIME_AHEAD = "maxEventTime ahead of the clock"
APPEND_TIME_AHEAD = "append time ahead of the clock"
OUTLIVES = "records outlive their retention"
UNKNOWN = "unknown append times"
WRONG_UNIT = "times in a wrong unit"
CORRECTED = "corrections in force"

# What helps: `Finding.remedy`.
RESET = "reset"  # let append times and maxEventTime go back
END_BY_AGE = "segment.ms"  # end segments by age
APPEND = "append"
REFUSE_OLD = "message.timestamp.before.max.ms"  # refuse records with such times
REFUSE_FUTURE = "message.timestamp.after.max.ms"
EXPLAIN = "explain"  # nothing has to be done, or the log lines say what

# The units of figures: `Finding.unit`.
MILLISECONDS = "ms"
SEGMENTS = "segments"
CORRECTIONS = "corrections"


class Finding(NamedTuple):
    """One thing that is wrong with the times of a log."""

    kind: str
    figure: int
    unit: str
    sentence: str
    remedy: str


class SegmentFacts(NamedTuple):
    """What is known of one segment."""

    base_offset: int
    candidate: Candidate  # with its times as retention judges them
    times: SegmentTimes  # as they were stored
    adopted_ms: int | None  # the latest adoption of a batch with an unknown append time
    unread_bytes: int = 0  # of its log: times of batches there are not known

    @property
    def is_known(self) -> bool:
        """Whether the times of all its batches are known."""
        return not self.unread_bytes


class Facts(NamedTuple):
    """What is known of one log. Times are ms, None if there is none."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    high_watermark: int
    max_event_time: int | None
    last_append_time: int | None
    corrections: Sequence[Correction] = ()
    is_closed: bool = False  # the next request, or round of retention, that needs the log opens it
    is_replicated: bool = False  # other brokers have copies: append times go back by command alone

    @property
    def unread_segments(self) -> int:
        """The number of segments whose times are not all known."""
        return sum(not segment.is_known for segment in self.segments)

    @property
    def unread_bytes(self) -> int:
        """The bytes of these segments that would have to be read."""
        return sum(segment.unread_bytes for segment in self.segments)


class Readings(NamedTuple):
    """What clocks show when a log is judged."""

    now_ms: int  # what the clock shows
    deletion_ms: int  # the time by which retention deletes
    check_interval_ms: int  # how often it does


def diagnose(facts: Facts, config: TopicConfig, readings: Readings) -> list[Finding]:
    """Returns everything that is wrong with the times of a log; an empty list for a healthy one."""
    return [finding for rule in _RULES for finding in rule(facts, config, readings)]


# --- the clock -----------------------------------------------------------------------------------


def _append_time_ahead(facts: Facts, _config: TopicConfig, readings: Readings) -> Iterator[Finding]:
    if facts.last_append_time is not None and is_behind(facts.last_append_time, readings.now_ms):
        if facts.is_replicated:
            what, remedy = (
                "Append times stand still until the clock is there, or until a reset.",
                RESET,
            )
        elif facts.is_closed:
            what, remedy = f"{_OPENING} that corrects it.", EXPLAIN
        else:
            what, remedy = "The next append corrects it; the command does so now.", RESET
        yield Finding(
            APPEND_TIME_AHEAD,
            ahead(facts.last_append_time, readings.now_ms),
            MILLISECONDS,
            f"The last append time is {to_iso(facts.last_append_time)}, and the clock shows "
            f"{to_iso(readings.now_ms)}: what was appended then counts as new. {what}",
            remedy,
        )


_OPENING = "Nothing has to be done: the log is closed, and the next request or round of retention opens it;"


def _is_corrected_when_opened(facts: Facts, readings: Readings) -> bool:
    """Returns whether opening the log lets its times go back to the clock."""
    is_ahead = is_behind(facts.last_append_time, readings.now_ms)
    return facts.is_closed and is_ahead and not facts.is_replicated


def _event_time_ahead(facts: Facts, config: TopicConfig, readings: Readings) -> Iterator[Finding]:
    ahead_ms = event_time_ahead(
        facts.max_event_time, config.event_time_ahead_max_ms, readings.now_ms
    )
    if ahead_ms and is_behind(ahead_ms, 0):
        rules = retention_of(config)
        consequence = (
            "retention.max.eventtime.ms counts from there, and deletes too early."
            if rules.event_ms is not None
            else "retention.max.eventtime.ms would count from there, if it were set."
        )
        remedy = RESET
        if _is_corrected_when_opened(facts, readings):
            consequence, remedy = f"{consequence} {_OPENING} that computes it again.", EXPLAIN
        yield Finding(
            EVENT_TIME_AHEAD,
            ahead_ms,
            MILLISECONDS,
            f"The partition's largest event time is {to_iso(facts.max_event_time)}, more than "
            f"event.time.ahead.max.ms={to_duration(config.event_time_ahead_max_ms)} after the clock, "
            f"which shows {to_iso(readings.now_ms)}: {consequence}",
            remedy,
        )


def _corrected(facts: Facts, _config: TopicConfig, _readings: Readings) -> Iterator[Finding]:
    if facts.corrections:
        last = facts.corrections[-1]
        what = f"what was appended before offset {last.end_offset}"
        if last.shift_ms:
            counts = f"{what}, by a clock that was behind, as written up to {to_span(last.shift_ms)} later"
        else:
            counts = f"{what} as written at {to_iso(last.to_ms)} at the latest"
        yield Finding(
            CORRECTED,
            len(facts.corrections),
            CORRECTIONS,
            f"A clock was wrong, and has been corrected: policies count {counts}. A correction ends "
            "when the records that it concerns are deleted.",
            EXPLAIN,
        )


# --- segments ------------------------------------------------------------------------------------


def _cannot_roll(facts: Facts, config: TopicConfig, readings: Readings) -> Iterator[Finding]:
    active = facts.segments[-1]
    rolling, rules = rolling_of(config), retention_of(config)
    if not active.is_known:
        return
    if never_ends(active.times, rolling):
        if rules.retention_ms is not None or rules.event_ms is not None or config.is_compacted:
            yield Finding(
                CANNOT_ROLL,
                1,
                SEGMENTS,
                f"No age ends the segment at offset {active.base_offset}, because {rolling.setting} sets "
                f"no limit. {_waits_for_end(config)} until the segment is full (segment.bytes).",
                END_BY_AGE,
            )
    elif config.is_compacted and config.max_compaction_lag_ms != LONG_MAX:
        waits_ms = waits_for_append(
            active.times, rolling, readings.deletion_ms, readings.check_interval_ms
        )
        if waits_ms:
            yield Finding(
                CANNOT_ROLL,
                waits_ms,
                MILLISECONDS,
                f"The segment at offset {active.base_offset} is older than "
                f"{rolling.setting}={to_duration(rolling.segment_ms)}, and is compacted only after it "
                "has ended: segments end with an append, and there has been none.",
                APPEND,
            )


def _waits_for_end(config: TopicConfig) -> str:
    """Returns what does not happen to a segment that goes on and on."""
    if config.is_compacted:
        return "Its records are not compacted"
    return "While records are appended to it, retention deletes none of its records"


def _unknown(facts: Facts, _config: TopicConfig, _readings: Readings) -> Iterator[Finding]:
    unknown = [each for each in facts.segments if each.candidate.size and each.times.has_unknown]
    if unknown:
        first, last = unknown[0], unknown[-1]
        adopted = "" if last.adopted_ms is None else f", at {to_iso(last.adopted_ms)} at the latest"
        yield Finding(
            UNKNOWN,
            len(unknown),
            SEGMENTS,
            f"In the segments from offset {first.base_offset} to {last.candidate.end_offset - 1}, nobody "
            "knows when some batches were appended: they count as appended when this broker found "
            f"them{adopted}.",
            EXPLAIN,
        )


def _wrong_unit(facts: Facts, config: TopicConfig, readings: Readings) -> Iterator[Finding]:
    found: dict[str, list[tuple[int, UnitMismatch]]] = {}
    usual, rules = usual_range(readings.now_ms), rules_of(config, config.target_magic)
    for segment in facts.segments:
        times = segment.times
        if is_within(times.largest, usual) and is_within(times.first, usual):
            continue
        for time in dict.fromkeys((times.largest, times.first)):
            mismatch = stored_unit_mismatch(time, times.last_append, readings.now_ms)
            if mismatch is not None:
                found.setdefault(mismatch.unit, []).append((segment.base_offset, mismatch))
    for unit, examples in found.items():
        base_offset, mismatch = examples[0]
        what, remedy = _against_wrong_unit(mismatch.timestamp, rules, readings.now_ms)
        yield Finding(
            WRONG_UNIT,
            len({offset for offset, _ in examples}),
            SEGMENTS,
            f"The time {mismatch.timestamp} in the segment at offset {base_offset} looks like {unit}: "
            f"it means {to_iso(mismatch.timestamp)} here, and {to_iso(mismatch.meant)} in {unit}. "
            f"Times are milliseconds. {what}",
            remedy,
        )


def _against_wrong_unit(timestamp: int, rules: Rules, now_ms: int) -> tuple[str, str]:
    """Returns what becomes of new records with such a time, and what helps."""
    if rules.log_append_time:
        return "New records get the broker's time. These stay as they are.", EXPLAIN
    if is_refused(timestamp, rules, now_ms):
        return "Such records are refused now. These stay as they are.", EXPLAIN
    remedy = REFUSE_FUTURE if exceeds(timestamp, now_ms) else REFUSE_OLD
    return "A window of record times refuses such records.", remedy


# --- retention -----------------------------------------------------------------------------------


def _outlives(facts: Facts, config: TopicConfig, readings: Readings) -> Iterator[Finding]:
    rules, rolling = retention_of(config), rolling_of(config)
    if rules.retention_ms is None or facts.unread_segments:
        return
    oldest = found = None
    for segment in facts.segments:
        if segment.candidate.size:
            times = segment.candidate.times()
            found = outlived(
                times,
                rules,
                longest_age(rolling),
                readings.check_interval_ms,
                readings.deletion_ms,
            )
            if found is not None:
                oldest = segment
                break
    if oldest is None or found is None:
        return
    reason, remedy = _kept_by(oldest, facts, config, readings)
    yield Finding(
        OUTLIVES,
        found.by_ms,
        MILLISECONDS,
        f"Records from offset {max(oldest.base_offset, facts.log_start_offset)} on should have been "
        f"deleted by {to_iso(found.due_ms)} (retention.ms={to_duration(rules.retention_ms)}). "
        f"{reason}",
        remedy,
    )


def _kept_by(
    oldest: SegmentFacts, facts: Facts, config: TopicConfig, readings: Readings
) -> tuple[str, str]:
    """Returns what keeps records that should have been deleted, and what helps."""
    rules = retention_of(config)
    schedule = retention_schedule(
        [segment.candidate for segment in facts.segments],
        rules,
        now_ms=readings.deletion_ms,
        log_start_offset=facts.log_start_offset,
        high_watermark=facts.high_watermark,
        max_event_time=facts.max_event_time,
    )
    for segment, expected in zip(facts.segments, schedule, strict=True):
        if expected.due_ms is None or not is_due(expected.due_ms, readings.deletion_ms):
            return _hold(segment, expected, facts, rules, readings)
        if segment is oldest:
            break
    sentence = (
        "They are due, and no round of retention has deleted them: the broker's log says why."
    )
    return sentence, EXPLAIN


def _hold(
    segment: SegmentFacts,
    expected: SegmentSchedule,
    facts: Facts,
    rules: Retention,
    readings: Readings,
) -> tuple[str, str]:
    """Returns why a segment stays, and what helps."""
    name = f"the segment at offset {segment.base_offset}"
    times = segment.candidate.times()
    if expected.is_held:
        return f"Consumers have not been shown all of {name}, which therefore stays.", EXPLAIN
    newest = newest_counted(times, rules)
    if is_behind(newest, readings.now_ms):
        ahead_of = f"{to_iso(newest)}, by a clock that was ahead"
        why = f"They wait for {name}: its youngest record was appended at {ahead_of}."
        if _is_corrected_when_opened(facts, readings):
            return f"{why} {_OPENING} that corrects it.", EXPLAIN
        return why, RESET
    when = "" if expected.due_ms is None else f" until {to_iso(expected.due_ms)}"
    if times.has_unknown:
        return (
            f"They wait for {name}, which stays{when}: nobody knows when all of it was appended.",
            EXPLAIN,
        )
    return f"They wait for {name}, which has younger records and stays{when}.", EXPLAIN


_RULES: tuple[Callable[[Facts, TopicConfig, Readings], Iterator[Finding]], ...] = (
    _append_time_ahead,
    _event_time_ahead,
    _cannot_roll,
    _outlives,
    _wrong_unit,
    _unknown,
    _corrected,
)
