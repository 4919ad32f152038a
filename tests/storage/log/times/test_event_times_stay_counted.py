"""event.time.ahead.max.ms is raised: what was counted under the smaller limit counts as it did.

Otherwise maxEventTime would jump by as much as one wrong time, and event-time retention would delete
what nobody wanted to delete. `tests/time/event-time.txt` has crashes, `tests/storage/compaction` cleanings.
"""

from dataclasses import replace

import pytest

from tests.storage.conftest import read_max_event_time
from tests.storage.log.replication.test_roles import LEADER, follow
from tidelog.storage.log.replication import replica
from tidelog.storage.log.times.saved_times import SavedTimes

FUTURE, DAY, YEAR = 10**15, 86_400_000, 31_557_600_000


@pytest.fixture
def log(make_log):
    """A log whose second record is of the future and counts as written 50 ms after its append."""
    log = make_log(event_time_ahead_max_ms=50).create()
    log.append([90], now=100)
    log.append([FUTURE], now=100)
    log.append([95], now=100)
    return log


def raise_limit(log, ahead_ms=YEAR):
    log.partition.config = log.config = replace(log.config, event_time_ahead_max_ms=ahead_ms)


def largest(log):
    return read_max_event_time(log.partition)


def test_after_a_truncation(log):
    raise_limit(log)
    log.partition.truncater.truncate_to(2, below_high_watermark=True)
    assert largest(log) == 150
    log.append([FUTURE], now=200)
    assert largest(log) == 200 + YEAR


def test_after_the_high_watermark_was_lowered(log):
    raise_limit(log)
    log.store.checkpoint()
    log.partition.roles.follow(1, high_watermark=1)
    with log.partition.state.append_lock:
        log.partition.state.advance_high_watermark(3)
    assert largest(log) == 150


def test_on_a_follower_that_copies_it(make_log):
    """It has the new limit when it copies what its leader had counted before."""
    log = make_log(name="copy", event_time_ahead_max_ms=YEAR).create()
    log.partition.roles.follow(1)
    told = LEADER._replace(high_watermark=3, max_event_time=150)
    follow(log, 0, 90, FUTURE, append=100, leader=told)
    follow(log, 2, 95, append=100, leader=told)
    assert log.partition.max_event_time == 150
    assert log.partition.segments[0].times.event == 150
    follow(log, 3, FUTURE, append=200, leader=told)
    log.store.checkpoint()
    log.close()
    log.open(300)
    log.partition.roles.lead(2, high_watermark=3)
    assert largest(log) == 150
    with log.partition.state.append_lock:
        log.partition.state.advance_high_watermark(4)
    assert largest(log) == 200 + YEAR  # its leader had not counted it yet


def test_a_time_that_is_not_of_the_future_counts_whatever_the_leader_has_read(make_log):
    log = make_log(name="copy").create()
    log.partition.roles.follow(1)
    follow(log, 0, 90, append=100, leader=LEADER._replace(high_watermark=3, max_event_time=5))
    assert log.partition.max_event_time == 90


def test_injected_bugs_are_caught(log, make_log, monkeypatch):
    monkeypatch.setattr(SavedTimes, "keep_events", lambda _: None)
    raise_limit(log)
    log.crash()
    log.open(100)
    assert largest(log) != 150
    monkeypatch.setattr(replica, "counted_limit", lambda limit, *_: limit)
    with pytest.raises(AssertionError):
        test_on_a_follower_that_copies_it(make_log)
