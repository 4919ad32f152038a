"""What `retention.refuse.expired` refuses goes by the largest event time by which retention deletes."""

from __future__ import annotations

import pytest

from tidelog.protocol.errors import InvalidTimestamp
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom

DAY_MS = 86_400_000
NOW_MS = 1_000 * DAY_MS
OLD_MS = 500 * DAY_MS


@pytest.fixture
def log(make_log):
    return make_log(
        retention_ms=-1,
        retention_refuse_expired=True,
        retention_max_eventtime_ms=DAY_MS,
        retention_max_eventtime_grace_ms=0,
    ).create(NOW_MS)


def test_the_time_of_a_marker_refuses_no_records(log):
    log.append([OLD_MS], now=NOW_MS)
    log.partition.append_marker(9, 0, is_commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    log.append([OLD_MS], now=NOW_MS)


def test_nothing_is_refused_for_an_event_time_that_was_taken_back(log):
    ahead_ms = NOW_MS + 300 * DAY_MS
    log.append([ahead_ms], now=ahead_ms)
    log.partition.append_clock.note_step_back(NOW_MS)
    log.append([NOW_MS - 1], now=NOW_MS)


def test_a_new_leader_refuses_by_what_it_has_copied(log):
    copied = build([Record(0, NOW_MS, b"k", b"v")])
    leader = LeaderState(1, 0, None, None)
    log.partition.replica.append_as_follower(
        copied, [AppendedFrom(0, NOW_MS)], (), leader, now_ms=NOW_MS
    )
    log.partition.roles.lead(1)
    with pytest.raises(InvalidTimestamp, match=r"retention\.max\.eventtime\.ms"):
        log.append([OLD_MS], now=NOW_MS)
