"""Bugs to inject in what a log does with times: stamps, lookups, rolls, retention, event times."""

from __future__ import annotations

import pytest

from tests.storage.log_model.agreement import HIGHEST
from tests.time_rules import time_rules
from tidelog.storage.log import lookup
from tidelog.storage.log.recovery import unknown_append_times
from tidelog.storage.log.retention import explanation
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.segment import survey
from tidelog.storage.segment.append_times import AppendTimes, Reached
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.log_indexes import LogIndexes
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time import retention
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import or_none

# The right ones. What has a private name here is replaced, not asked: a bug has to be injected in it.
REACH = getattr(lookup, "_reach")  # noqa: B009
SCHEDULE = explanation.retention_schedule
ADOPT, NOTE, FLOOR, PACK = Segment.adopt, SegmentTimes.note, OffsetIndex.floor, partition_times.pack
REACHING, APPEND = AppendTimes.first_reaching, AppendTimes.append
RULES = {
    name: getattr(time_rules, name)
    for name in (
        "segments_to_delete",
        "aged_from",
        "should_roll",
        "reaches",
        "exceeds",
        "retention_of",
        "outdated_by",
    )
}


# --- indexes and lookups --------------------------------------------------------------------------


def believe_headers(_, found, *limit):
    return or_none(found.batch.max_timestamp)


def largest_time_of_the_last_entry(segment):
    last = segment.time_index.last()
    return None if last is None else last.timestamp


def one_time_entry_too_far(index, timestamp):
    return next((e for e in index.entries() if e.timestamp > timestamp), None)


def believe_counted_entries(segment, line, **known):
    ADOPT(segment, line._replace(index_entries=0, time_index_entries=0), **known)


def know_all(times, time):
    return REACHING(times, time)._replace(unknown_from=None)


def doubt_what_lies_before_an_earlier_time(times, time):
    base = times.base_offset
    entries = [e for e in times.entries() if e.time != UNKNOWN and e.time >= time]
    offset = entries[0].offset + base if entries else None
    unknown = [e.offset + base for e in times.entries() if e.time == UNKNOWN]
    unknown = [o for o in unknown if offset is None or o < offset]
    return Reached(offset, unknown[0] if unknown or not len(times) else None)


def halve_the_segments(segments, time, back):
    """Right as long as no time ever goes back."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        last = segments[middle].append_times.last_time
        low, high = (low, middle) if last is not None and last >= time else (middle + 1, high)
    return REACH(segments[max(low - 1, 0) :], time, back)


# --- stamps ---------------------------------------------------------------------------------------


def forget_the_first_of_a_segment(times, append_time_ms, offset):
    """Known only from the next millisecond on."""
    APPEND(times, append_time_ms if len(times) else UNKNOWN, offset)


def stamp_with_no_time(last, now, *_, **__):
    return now if last is None else max(last, now)


def let_time_go_back(_, now, *__, **___):
    return 0 if now == -1 else now


# --- rolls and retention --------------------------------------------------------------------------


def roll_by_the_largest_time_so_far(times, *rest):
    times = times.copy()
    times.first = times.largest
    return RULES["should_roll"](times, *rest)


def roll_without_an_interval(*args):
    return RULES["should_roll"](*args[:-1], 0)


def age_by_record_times_alone(times, rules):
    limit = rules.retention_ms
    return None if limit is None or times.largest is None else times.largest + limit + 1


def one_less(name):
    def early(*args):
        due = RULES[name](*args)
        return None if due is None else due - 1

    return early


def delete_beyond_the_first_that_stays(candidates, rules, **more):
    for first in range(len(candidates)):  # as if nothing were older
        found = RULES["segments_to_delete"](candidates[first:], rules, **more)
        if found:
            return RULES["segments_to_delete"](candidates[:first], rules, **more) + found
    return []


def explain_late(*log, **more):
    """By a rule that is a millisecond late; the round of retention has the right one."""
    due = RULES["aged_from"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            time_rules, "aged_from", lambda *args: None if due(*args) is None else due(*args) + 1
        )
        return list(SCHEDULE(*log, **more))


def note_no_missing_time(times, first, largest, offset, _, append, limit):
    if largest is not None:
        NOTE(times, first, largest, offset, False, append, limit)


# What each is, and what is replaced by what.
BUGS = {
    "headers are believed": (LogIndexes, "largest_of", believe_headers),
    "segments are skipped by their last entry": (
        Segment,
        "largest_time",
        largest_time_of_the_last_entry,
    ),
    "a search begins with the last entry": (TimeIndex, "first_reaching", lambda i, _: i.last()),
    "one index entry too far": (OffsetIndex, "floor", lambda i, offset: FLOOR(i, offset + 1)),
    "one time entry too far": (TimeIndex, "first_reaching", one_time_entry_too_far),
    "nothing is found below 1970": (
        time_rules,
        "reaches",
        lambda t, target: target >= 0 and RULES["reaches"](t, target),
    ),
    "largest times begin at -1, as in Kafka": (
        time_rules,
        "exceeds",
        lambda t, largest: RULES["exceeds"](t, -1 if largest is None else largest),
    ),
    "only one of two indexes is made anew": (
        LogIndexes,
        "adopt",
        lambda indexes, _, times: setattr(indexes, "_time_index", times),
    ),
    "what came after the last write is not learnt": (survey, "catch_up", lambda _: None),
    "what is unknown is guessed": (AppendTimes, "first_reaching", know_all),
    "an equal append time is passed over": (
        AppendTimes,
        "first_reaching",
        lambda times, t: REACHING(times, t + 1),
    ),
    "doubts reach over an earlier time": (
        AppendTimes,
        "first_reaching",
        doubt_what_lies_before_an_earlier_time,
    ),
    "append times are sought from the second segment on": (
        lookup,
        "_reach",
        lambda segments, *more: REACH(segments[1:] or segments, *more),
    ),
    "append times are sought by halves": (lookup, "_reach", halve_the_segments),
    "times that went back clear doubts": (AppendTimes, "first_known_time", None),
    "an answer lies before the start": (
        lookup,
        "_first_present",
        lambda segments, *_: segments[0].base_offset,
    ),
    "a power loss is not noticed": (
        unknown_append_times,
        "mark_unknown",
        lambda *_, **__: None,
    ),
    "the first append time of a segment is lost": (
        AppendTimes,
        "append",
        forget_the_first_of_a_segment,
    ),
    "-1 is a stamp": (time_rules, "append_time", stamp_with_no_time),
    "append times go back": (time_rules, "append_time", let_time_go_back),
    "segments end by their largest time": (
        time_rules,
        "should_roll",
        roll_by_the_largest_time_so_far,
    ),
    "no interval keeps a segment open": (time_rules, "should_roll", roll_without_an_interval),
    "age counts by record times alone": (time_rules, "aged_from", age_by_record_times_alone),
    "age counts a millisecond early": (time_rules, "aged_from", one_less("aged_from")),
    "retention goes beyond the first that stays": (
        time_rules,
        "segments_to_delete",
        delete_beyond_the_first_that_stays,
    ),
    "an explanation is a millisecond late": (explanation, "retention_schedule", explain_late),
    "a missing time has no age": (SegmentTimes, "note", note_no_missing_time),
    "events count as they claim": (time_rules, "capped", lambda append, slack: HIGHEST),
    "the largest event goes with its segment": (LargestEvent, "keep", lambda largest, event: None),
    "the largest event goes at a start": (
        partition_times,
        "pack",
        lambda times: PACK(times._replace(max_event_time=None)),
    ),
    "there is no grace": (
        time_rules,
        "retention_of",
        lambda config: RULES["retention_of"](config)._replace(grace_ms=0),
    ),
    "events expire a millisecond early": (time_rules, "outdated_by", one_less("outdated_by")),
    "what has no event time holds others back": (
        getattr(retention, "_EventTimes"),  # noqa: B009
        "times",
        lambda dated, number: getattr(dated, "_candidates")[number].times(),  # noqa: B009
    ),
    "counted entries of an index are believed": (Segment, "adopt", believe_counted_entries),
}
