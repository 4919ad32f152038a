"""What is wrong with the times of a log, each in a sentence, with a figure and what helps.

`diagnose` takes facts about a log, open or closed, and changes nothing. The rules that compare times
are in `storage/time`. A healthy log has no findings: what a setting allows is none. Segments whose
times are not known, because they were not read, are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.instants import to_duration, to_iso, to_span
from tidelog.config.setting import LONG_MAX
from tidelog.storage.log.retention.findings import (
    APPEND,
    APPEND_TIME_AHEAD,
    APPENDS,
    CANNOT_ROLL,
    CORRECTED,
    CORRECTIONS,
    END_BY_AGE,
    EVENT_TIME_AHEAD,
    EXPLAIN,
    MILLISECONDS,
    NAME_MISSING,
    OUTLIVES,
    REFUSE_FUTURE,
    REFUSE_OLD,
    RESET,
    SEGMENTS,
    UNKNOWN,
    WRONG_UNIT,
    ZERO_TIME,
    Finding,
)
from tidelog.storage.time.append_time import ahead
from tidelog.storage.time.arrivals import (
    ZERO_TIMES,
    is_within,
    missing_values_with_zero_times,
    stored_unit_mismatch,
    usual_range,
    zero_time,
)
from tidelog.storage.time.corrections import is_behind
from tidelog.storage.time.event_time import event_time_ahead
from tidelog.storage.time.retention import (
    newest_counted,
    outlived,
    retention_of,
    retention_schedule,
)
from tidelog.storage.time.rolling import longest_age, never_ends, rolling_of, waits_for_append
from tidelog.storage.time.stamping import is_refused, keeps_time, rules_of
from tidelog.storage.time.timestamp import exceeds, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.log.retention.findings import Facts, Readings, SegmentFacts
    from tidelog.storage.time.arrivals import UnitMismatch
    from tidelog.storage.time.retention import Retention, SegmentSchedule
    from tidelog.storage.time.stamping import StampingRules


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
    """Returns whether opening the log resets its times to the clock."""
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
        what, remedy = against_wrong_unit(mismatch.timestamp, rules, readings.now_ms)
        yield Finding(
            WRONG_UNIT,
            len({offset for offset, _ in examples}),
            SEGMENTS,
            f"The time {mismatch.timestamp} in the segment at offset {base_offset} looks like {unit}: "
            f"it means {to_iso(mismatch.timestamp)} here, and {to_iso(mismatch.meant)} in {unit}. "
            f"Times are milliseconds. {what}",
            remedy,
        )


def against_wrong_unit(timestamp: int, rules: StampingRules, now_ms: int) -> tuple[str, str]:
    """Returns what becomes of new records with such a time, and what helps."""
    if rules.log_append_time:
        return "New records get the broker's time. These stay as they are.", EXPLAIN
    if is_refused(timestamp, rules, now_ms):
        return "Such records are refused now. These stay as they are.", EXPLAIN
    remedy = REFUSE_FUTURE if exceeds(timestamp, now_ms) else REFUSE_OLD
    return "A window of record times refuses such records.", remedy


def _zero_times(facts: Facts, config: TopicConfig, _readings: Readings) -> Iterator[Finding]:
    stored = [
        (segment.base_offset, zero)
        for segment in facts.segments
        if (zero := zero_time(segment.times.largest, segment.times.first)) is not None
    ]
    if stored:
        base_offset, zero = stored[0]
        figure, unit, where = len(stored), SEGMENTS, f"in the segment at offset {base_offset}"
    elif facts.zero_time is not None and keeps_time(facts.zero_time, config):
        zero, figure, unit = facts.zero_time, facts.zero_batches, APPENDS
        where = "in what has arrived since the log was opened"
    else:
        return
    what, remedy = "New records do not get it. These stay as they are.", EXPLAIN
    if keeps_time(zero, config):
        what, remedy = f"{NAME_MISSING} stores new ones without a time.", NAME_MISSING
    yield Finding(
        ZERO_TIME,
        figure,
        unit,
        f"The time {zero} {where} is {ZERO_TIMES[zero]}: the producer has probably set none. Retention "
        f"by record time deletes such records at once, and retention.time.basis=append does not. {what}",
        remedy,
        missing_values_with_zero_times(config),
    )


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
    _zero_times,
    _unknown,
    _corrected,
)
