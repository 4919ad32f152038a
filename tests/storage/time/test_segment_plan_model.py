"""Lookups, rolls and retention against a second model, which plans every segment by itself.

The model is written from the rules alone (KIP-32, KIP-33, KIP-79, KIP-228, event-time retention): a list of
records with both their times, before 1970 too, and where segments ought to begin. It shares nothing with
`storage` but the size of what was stored, so a roll too many or too few is a difference like any other.
Lives mix formats, codecs, kinds of time, orders, trims, clean stops, kills (the directory is copied while
open), torn ends, power losses and damaged indexes; logs of somebody else have headers that lie. Planted
bugs must be caught. The model is in segment_plan/life.py.

A decision is one append judged for a roll, or one segment judged by one round of retention; the
model comes to its own answer for each, and they are compared. TIDELOG_MODEL_SEED=n replays one
life, TIDELOG_MODEL_LOOKUPS=n says how many lookups are asked, TIDELOG_MODEL_DECISIONS=n how many
decisions of either kind at least.
"""

import os
from itertools import count

import pytest

from tests.storage.time.segment_plan.life import HIGHEST, seen
from tests.storage.time.segment_plan.lives import live, visit
from tests.time_rules import time_rules
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.segment import survey
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.retention import _EventTimes
from tidelog.storage.time.timestamp import or_none

LOOKUPS = int(os.environ.get("TIDELOG_MODEL_LOOKUPS", "6000"))
DECISIONS = int(os.environ.get("TIDELOG_MODEL_DECISIONS", str(LOOKUPS // 30)))
SEED = os.environ.get("TIDELOG_MODEL_SEED")


@pytest.mark.timeout(1200)
def test_lives(tmp_path):
    """Enough lives for the lookups wanted, or the one that is asked for."""
    if SEED is not None:
        live(tmp_path, int(SEED))
        return
    for seed in count():
        decisions = min(seen["roll decisions"], seen["retention decisions"])
        negative = seen["lookups below 1970"]
        appended = seen["lookups by append time"]
        enough = seen["lookups"] >= LOOKUPS and negative >= LOOKUPS // 5
        enough = enough and seen["deleted by event time"] >= DECISIONS // 20
        if enough and appended >= LOOKUPS // 10 and decisions >= DECISIONS:
            break
        live(tmp_path, seed)
    print(f"no mismatch: {seen}")


@pytest.mark.parametrize("seed", range(max(12, LOOKUPS // 400)))
def test_logs_of_somebody_else(seed, tmp_path):
    visit(tmp_path, seed)


# --- planted bugs: each must be caught ---


def believe_headers(monkeypatch):
    def note(segment, found, append_time_ms, times):
        time = or_none(found.batch.max_timestamp)
        if append_time_ms is None:
            append_time_ms = segment.adoptions.time_of(found.batch.last_offset)
        times.note(time, time, found.batch.last_offset, time is None, append_time_ms, HIGHEST)
        return True

    def largest_of(self, found):
        return or_none(found.batch.max_timestamp)

    monkeypatch.setattr(survey, "_note", note)
    monkeypatch.setattr(Segment, "largest_of", largest_of)


def keep_append_times_when_cutting(monkeypatch):
    monkeypatch.setattr(AppendTimes, "truncate", lambda self, end_offset: None)


def skip_segments_by_their_last_entry(monkeypatch):
    def largest_time(self):
        last = self.time_index.last()
        return None if last is None else last.timestamp

    monkeypatch.setattr(Segment, "largest_time", largest_time)


def search_behind_the_last_entry_alone(monkeypatch):
    monkeypatch.setattr(TimeIndex, "first_reaching", lambda self, timestamp: self.last())


def one_index_entry_too_far(monkeypatch):
    floor = OffsetIndex.floor
    monkeypatch.setattr(OffsetIndex, "floor", lambda self, offset: floor(self, offset + 1))


def one_time_entry_too_far(monkeypatch):
    def first_reaching(self, timestamp):
        return next((e for e in self.entries() if e.timestamp > timestamp), None)

    monkeypatch.setattr(TimeIndex, "first_reaching", first_reaching)


def age_by_record_times_alone(monkeypatch):
    def aged_from(times, retention):
        limit = retention.retention_ms
        return None if limit is None or times.largest is None else times.largest + limit + 1

    monkeypatch.setattr(time_rules, "aged_from", aged_from)


def delete_beyond_the_first_that_stays(monkeypatch):
    right = time_rules.segments_to_delete

    def segments_to_delete(candidates, retention, **more):
        for first in range(len(candidates)):  # as if nothing were older
            found = right(candidates[first:], retention, **more)
            if found:
                return right(candidates[:first], retention, **more) + found
        return []

    monkeypatch.setattr(time_rules, "segments_to_delete", segments_to_delete)


def delete_one_millisecond_early(monkeypatch):
    right = time_rules.aged_from

    def aged_from(times, retention):
        due_ms = right(times, retention)
        return None if due_ms is None else due_ms - 1

    monkeypatch.setattr(time_rules, "aged_from", aged_from)


def roll_by_the_largest_time_so_far(monkeypatch):
    right = time_rules.should_roll

    def should_roll(times, largest, append_time_ms, now_ms, segment_ms, min_interval_ms):
        times = times.copy()
        times.first = times.largest
        return right(times, largest, append_time_ms, now_ms, segment_ms, min_interval_ms)

    monkeypatch.setattr(time_rules, "should_roll", should_roll)


def roll_without_an_interval(monkeypatch):
    right = time_rules.should_roll

    def should_roll(times, largest, append_time_ms, now_ms, segment_ms, min_interval_ms):
        return right(times, largest, append_time_ms, now_ms, segment_ms, 0)

    monkeypatch.setattr(time_rules, "should_roll", should_roll)


def find_nothing_below_1970(monkeypatch):
    right = time_rules.reaches
    monkeypatch.setattr(time_rules, "reaches", lambda t, target: target >= 0 and right(t, target))


def begin_largest_times_at_minus_one(monkeypatch):
    """As Kafka does."""
    right = time_rules.exceeds
    monkeypatch.setattr(
        time_rules, "exceeds", lambda t, largest: right(t, -1 if largest is None else largest)
    )


def take_the_unknown_for_earlier(monkeypatch):
    right = AppendTimes.first_reaching
    monkeypatch.setattr(
        AppendTimes, "first_reaching", lambda times, t: right(times, t)._replace(unknown_from=None)
    )


def find_what_was_appended_later(monkeypatch):
    right = AppendTimes.first_reaching
    monkeypatch.setattr(AppendTimes, "first_reaching", lambda times, t: right(times, t + 1))


def count_events_as_they_claim(monkeypatch):
    monkeypatch.setattr(time_rules, "capped", lambda append_time_ms, slack_ms: HIGHEST)


def forget_the_largest_event_with_its_segment(monkeypatch):
    monkeypatch.setattr(LargestEvent, "keep", lambda largest, event: None)


def forget_the_largest_event_at_a_start(monkeypatch):
    right = partition_times.pack
    monkeypatch.setattr(
        partition_times, "pack", lambda times: right(times._replace(max_event_time=None))
    )


def ignore_the_grace(monkeypatch):
    right = time_rules.retention_of
    monkeypatch.setattr(time_rules, "retention_of", lambda c: right(c)._replace(grace_ms=0))


def expire_events_one_millisecond_early(monkeypatch):
    right = time_rules.outdated_by

    def outdated_by(times, retention):
        outdated = right(times, retention)
        return None if outdated is None else outdated - 1

    monkeypatch.setattr(time_rules, "outdated_by", outdated_by)


def hold_events_back_by_what_has_none(monkeypatch):
    monkeypatch.setattr(
        _EventTimes, "times", lambda dated, number: dated._candidates[number].times()
    )


def stamp_with_no_time(monkeypatch):
    monkeypatch.setattr(
        time_rules, "append_time", lambda last, now: now if last is None else max(last, now)
    )


@pytest.mark.parametrize(
    ("plant", "run", "seeds"),
    [
        (believe_headers, visit, 10),
        (keep_append_times_when_cutting, live, 20),
        (skip_segments_by_their_last_entry, live, 10),
        (search_behind_the_last_entry_alone, live, 20),
        (one_index_entry_too_far, live, 20),
        (one_time_entry_too_far, live, 20),
        (age_by_record_times_alone, live, 20),
        (delete_beyond_the_first_that_stays, live, 20),
        (delete_one_millisecond_early, live, 60),
        (roll_by_the_largest_time_so_far, live, 20),
        (roll_without_an_interval, live, 20),
        (find_nothing_below_1970, live, 20),
        (begin_largest_times_at_minus_one, live, 40),
        (stamp_with_no_time, live, 40),
        (take_the_unknown_for_earlier, live, 40),
        (find_what_was_appended_later, live, 20),
        (count_events_as_they_claim, live, 20),
        (forget_the_largest_event_with_its_segment, live, 60),
        (forget_the_largest_event_at_a_start, live, 60),
        (ignore_the_grace, live, 60),
        (expire_events_one_millisecond_early, live, 60),
        (hold_events_back_by_what_has_none, live, 60),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_is_caught(plant, run, seeds, tmp_path, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run_all(run, tmp_path, seeds)


def run_all(run, path, seeds):
    for seed in range(seeds):
        run(path, seed)
