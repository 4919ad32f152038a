"""event-time.txt can fail: each mistake planted below must be noticed by one of its scripts."""

from __future__ import annotations

import pytest

from tests.time.planting import all_that_may_go, patched
from tests.time.scripts import SCRIPTS
from tests.time.world import run_part
from tests.time_rules import time_rules
from tidelog.config.topic import TopicConfig
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.time.event_time import capped
from tidelog.storage.time.lookup import reaches
from tidelog.storage.time.retention import (
    _EventTimes,
    expires_from,
    floored_until,
    outdated_by,
    retention_schedule,
)
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import later

EXPIRES_FROM, FLOORED_UNTIL, SCHEDULE = expires_from, floored_until, retention_schedule
OUTDATED_BY, REACHES = outdated_by, reaches
NOTE_CONTROL, BELOW, PACK = SegmentTimes.note_control, LargestEvent.below, partition_times.pack


def counted(times, append_time_ms):
    """Take a control batch's time for an event's."""
    NOTE_CONTROL(times, append_time_ms)
    times.event = later(append_time_ms, times.event)


def with_grace(change):
    return lambda times, retention, largest: EXPIRES_FROM(
        times, retention._replace(grace_ms=change(retention.grace_ms)), largest
    )


PLANTS = {
    "control batches are counted": patched(SegmentTimes, "note_control", counted),
    "an absurd stamp counts as it came": patched(time_rules, "event_limit", lambda *_: 2**62),
    "an absurd stamp counts as it came when learnt again": patched(
        time_rules, "event_slack", lambda _: 2**50
    ),
    "event.time.ahead.max.ms is not looked at": patched(
        time_rules, "event_limit", lambda _, append: capped(append, 100)
    ),
    "the window says how far ahead an event counts": patched(
        time_rules,
        "event_slack",
        lambda config: (
            3_600_000 if config.timestamp_window[1] is None else config.timestamp_window[1]
        ),
    ),
    "what was counted under a larger limit expires what is written now": patched(
        time_rules, "counted_event_time", lambda _, __, largest: largest
    ),
    "the largest event time goes with its segment": patched(LargestEvent, "keep", lambda *_: None),
    "the largest event time is forgotten at a start": patched(
        partition_times, "pack", lambda times: PACK(times._replace(max_event_time=None))
    ),
    "what nobody has been shown is counted": patched(
        LargestEvent, "below", lambda largest, _, *rest: BELOW(largest, 2**62, *rest)
    ),
    "there is no grace": patched(time_rules, "expires_from", with_grace(lambda _: 0)),
    "the grace ends a millisecond early": patched(
        time_rules, "expires_from", with_grace(lambda grace_ms: grace_ms and grace_ms - 1)
    ),
    "a grace of 0 is a millisecond": patched(
        time_rules, "expires_from", with_grace(lambda grace_ms: max(grace_ms, 1))
    ),
    "there is no floor": patched(time_rules, "floored_until", lambda *_: None),
    "the floor ends a millisecond early": patched(
        time_rules,
        "floored_until",
        lambda times, retention: retention.floor_ms and FLOORED_UNTIL(times, retention) - 1,
    ),
    "no basis is set": patched(TopicConfig, "lacks_basis", False),
    "a basis is set where one is given": patched(
        TopicConfig, "lacks_basis", property(lambda config: config.retention_max_eventtime_ms >= 0)
    ),
    "exactly as far behind as is kept is too far": patched(
        time_rules, "reaches", lambda largest, target: REACHES(largest, target - 1)
    ),
    "event times are compared with the clock": patched(
        time_rules,
        "retention_schedule",
        lambda *log, now_ms, **more: SCHEDULE(
            *log, now_ms=now_ms, **{**more, "max_event_time": now_ms}
        ),
    ),
    "the first event time of a segment counts, not the largest": patched(
        time_rules,
        "outdated_by",
        lambda times, retention: (
            None
            if times.first is None or OUTDATED_BY(times, retention) is None
            else times.first + retention.event_ms + 1
        ),
    ),
    "what has no event time holds back what follows": patched(
        _EventTimes, "times", lambda dated, number: dated._candidates[number].times()
    ),
    "a round goes on behind what stays": patched(time_rules, "segments_to_delete", all_that_may_go),
    "event time is off": patched(time_rules, "expires_from", lambda *_: None),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_caught(name, tmp_path, monkeypatch):
    PLANTS[name](monkeypatch)
    for number, part in enumerate(SCRIPTS["event-time.txt"]):
        results = run_part(part, tmp_path / str(number))
        if any(part.blocks[block][1] != result for block, result in results.items()):
            return
    pytest.fail(f"no script noticed that {name}")
