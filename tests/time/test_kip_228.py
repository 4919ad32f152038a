"""The script kip-228.txt can fail: mistakes about times before 1970, each planted and caught.

Most are what brokers really do: Kafka begins largest times at -1, indexes and ages no negative time;
others clamp, or take every negative time for a missing one, or let a difference wrap.
"""

from __future__ import annotations

import pytest

from tests.time.planting import both, exceeding, noting, patched, stamped
from tests.time.scripts import SCRIPTS
from tests.time.world import run_part
from tests.time_rules import time_rules
from tidelog.protocol.records import kernels
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.lookup import reaches
from tidelog.storage.time.retention import aged_from, retention_of
from tidelog.storage.time.rolling import should_roll
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.stamping import reported
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, exceeds, or_none

EXCEEDS, REACHES, OR_NONE = exceeds, reaches, or_none
AGED_FROM, SHOULD_ROLL, PACK = aged_from, should_roll, partition_times.pack
ADOPT, BELOW, FIRST_REACHING = Segment.adopt, LargestEvent.below, AppendTimes.first_reaching
RETENTION_OF, REWRITE, REPORTED = retention_of, kernels.rewrite, reported


def wrapped(value):
    """An int64 as the hardware has it."""
    return (value + 2**63) % 2**64 - 2**63


def aged_with_wrapping(times, retention):
    """The age as a difference of two longs: one that wraps is never more than retention.ms."""
    newest = times.last_append if retention.by_append else times.aging
    if newest is not None and wrapped(MAX_TIMESTAMP // 2 - newest) < 0:
        return None
    return AGED_FROM(times, retention)


def rolled_with_wrapping(times, largest, append_time_ms, now_ms, segment_ms, least):
    """The span as a difference of two longs."""
    if largest is None or times.first is None:
        return SHOULD_ROLL(times, largest, append_time_ms, now_ms, segment_ms, least)
    return wrapped(largest - times.first) > segment_ms


def age_of_file(times, retention):
    """Kafka: a segment without a largest time from 0 on is as old as its file."""
    if times.largest is not None and times.largest < 0:
        times = times.copy()
        times.aging = times.last_append
    return AGED_FROM(times, retention)


def without_negative(line):
    """A segment's line that takes a negative largest time for none."""
    times = line.times.copy()
    times.largest = times.largest if EXCEEDS(times.largest, -1) else None
    return line._replace(times=times)


def with_largest(config, **settings):
    """Take a setting of the largest number as it stands."""
    largest = {name: value for name, value in settings.items() if value == MAX_TIMESTAMP}
    return RETENTION_OF(config)._replace(**largest)


def clamped(base_timestamp):
    return max(base_timestamp, 0)


PLANTS = {
    "largest times begin at -1": patched(
        time_rules, "exceeds", lambda t, largest: EXCEEDS(t, -1 if largest is None else largest)
    ),
    "a segment notes no negative time": noting(
        lambda first, largest, offset, missing, append: (
            first,
            None if largest is not None and largest < 0 else largest,
            offset,
            missing,
            append,
        )
    ),
    "every negative time is a missing one": patched(
        time_rules, "or_none", lambda t: None if t < 0 else t
    ),
    "-1 is a time": patched(time_rules, "or_none", lambda t: t),
    "nothing below 1970 is searched for": patched(
        time_rules, "reaches", lambda largest, target: target >= 0 and REACHES(largest, target)
    ),
    "a time below 1970 is looked up as 1970": patched(
        time_rules, "reaches", lambda largest, target: REACHES(largest, max(target, 0))
    ),
    "negative largest times are lost at a start": patched(
        partition_times,
        "pack",
        lambda times: PACK(times._replace(segments=tuple(map(without_negative, times.segments)))),
    ),
    "the largest time of a header is believed to begin at -1": patched(
        Segment,
        "largest_of",
        lambda segment, found, *limit: LARGEST_OF(segment, found, *limit) or -1,
    ),
    "the window's early edge is 1970 at the earliest": stamped(
        min_timestamp=lambda stamps, _: max(stamps.min_timestamp, 0)
    ),
    "the window's early edge wraps": stamped(
        min_timestamp=lambda stamps, now: (
            wrapped(now - 2**63 + 2)
            if now < -2 and stamps.min_timestamp == MIN_TIMESTAMP
            else stamps.min_timestamp
        )
    ),
    "a window without an early edge ends at 1970": stamped(
        min_timestamp=lambda stamps, _: (
            0 if stamps.min_timestamp == MIN_TIMESTAMP else stamps.min_timestamp
        )
    ),
    "the window's late edge is the clock's, not beyond": stamped(
        max_timestamp=lambda stamps, now: (
            stamps.max_timestamp if stamps.max_timestamp == MAX_TIMESTAMP else now
        )
    ),
    "a stamp of -1 is given": patched(
        time_rules, "append_time", lambda last, now, **_: now if last is None else max(last, now)
    ),
    "append times begin at 1970": patched(
        time_rules, "append_time", lambda last, now, **_: max(last or 0, now, 0)
    ),
    "a stamp before 1970 is not told": patched(
        time_rules, "reported", lambda stamps: max(REPORTED(stamps), NO_TIMESTAMP)
    ),
    "rolling takes a negative first time for none": patched(
        time_rules,
        "should_roll",
        lambda times, *more: SHOULD_ROLL(
            times if EXCEEDS(times.first, -1) else _without_first(times), *more
        ),
    ),
    "the span of a segment wraps": patched(time_rules, "should_roll", rolled_with_wrapping),
    "negative times do not age": patched(time_rules, "aged_from", age_of_file),
    "ages wrap": patched(time_rules, "aged_from", aged_with_wrapping),
    "the largest number is only a long time": patched(
        time_rules,
        "retention_of",
        lambda config: with_largest(config, retention_ms=config.retention_ms),
    ),
    "the largest event time begins at 1970": patched(
        LargestEvent, "below", lambda largest, *more: max(BELOW(largest, *more) or 0, 0)
    ),
    "an event may count as -1": patched(
        time_rules, "capped", lambda append, slack: min(append + slack, MAX_TIMESTAMP)
    ),
    "the largest event time is a long time only": patched(
        time_rules,
        "retention_of",
        lambda config: with_largest(config, event_ms=config.retention_max_eventtime_ms),
    ),
    "append times below 1970 are looked up as 1970": patched(
        AppendTimes, "first_reaching", lambda times, at: FIRST_REACHING(times, max(at, 0))
    ),
    "negative times are in no index": patched(
        time_rules,
        "is_indexed",
        lambda largest, last: exceeding(largest, -1 if last is None else last),
    ),
    "a missing file of negative times is believed": both(
        patched(TimeIndex, "lacks_negatives", lambda *_: False),
        patched(
            Segment,
            "adopt",
            lambda segment, line, **known: ADOPT(
                segment, line._replace(time_index_entries=0), **known
            ),
        ),
    ),
    "conversion clamps": patched(
        kernels,
        "rewrite",
        lambda region, *rest: REWRITE(
            region._replace(base_timestamp=clamped(region.base_timestamp)), *rest
        ),
    ),
}
LARGEST_OF = Segment.largest_of


def _without_first(times):
    copy = SegmentTimes.copy(times)
    copy.first = None
    return copy


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_caught(name, tmp_path, monkeypatch):
    PLANTS[name](monkeypatch)
    for number, part in enumerate(SCRIPTS["kip-228.txt"]):
        results = run_part(part, tmp_path / str(number))
        if any(part.blocks[block][1] != result for block, result in results.items()):
            return
    pytest.fail(f"no script noticed that {name}")
