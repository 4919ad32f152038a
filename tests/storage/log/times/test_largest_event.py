"""The largest event time of a log with many segments, which each answer to a follower asks for."""

import pytest

from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom
from tidelog.storage.log.times import judging

SEGMENTS = 30
LEADER = LeaderState(0, 0, None, None)


@pytest.fixture
def judged(monkeypatch):
    """The base offsets of the segments that are looked at."""
    seen = []
    judge = judging.judged

    def noted(state, segment, times):
        seen.append(segment.base_offset)
        return judge(state, segment, times)

    monkeypatch.setattr(judging, "judged", noted)
    return seen


def leading(make_log):
    """Return a log that leads, each batch in a segment of its own; the first has the largest time."""
    log = make_log(segment_bytes=100).create()
    log.partition.roles.lead(1)
    for offset in range(SEGMENTS):
        log.append([5_000 - offset], now=10)
    advance(log, SEGMENTS)
    assert len(log.partition.segments) == SEGMENTS
    return log


def advance(log, offset):
    with log.partition.state.append_lock:
        log.partition.state.advance_high_watermark(offset)


def told(log):
    """Return the largest event time of an answer to a follower."""
    end = log.partition.log_end_offset
    return log.partition.reader.read_for_follower(end, 100, minimum_one=True).leader.max_event_time


def test_answers_to_followers_look_at_each_segment_once(make_log, judged):
    log = leading(make_log)
    assert told(log) == 5_000
    del judged[:]
    for _ in range(3):
        assert told(log) == 5_000
    assert set(judged) <= {SEGMENTS - 1}
    log.append([9_000], now=10)
    assert told(log) == 5_000
    advance(log, SEGMENTS + 1)
    assert told(log) == 9_000
    assert min(judged) >= SEGMENTS - 1


def test_segments_above_the_high_watermark_count_once_it_is_behind_them(make_log):
    log = make_log(segment_bytes=100).create()
    replica = log.partition.replica
    for offset in range(6):
        data = build([Record(offset, 1_000 + offset, b"k", b"v" * 50)])
        replica.append_as_follower(
            data, [AppendedFrom(offset, 10)], (), LEADER._replace(high_watermark=2), now_ms=10
        )
    assert log.partition.max_event_time == 1_001
    for offset in (3, 5):
        advance(log, offset)
        assert log.partition.max_event_time == 999 + offset


def test_all_segments_are_looked_at_again_when_the_clock_is_corrected(make_log):
    log = leading(make_log)
    assert told(log) == 5_000
    hour = 3_600_000
    log.append([90 * hour], now=90 * hour)
    advance(log, SEGMENTS + 1)
    assert told(log) == 90 * hour
    assert log.partition.append_clock.reset(1_000)
    assert told(log) == 1_000 + hour


def test_what_a_truncation_leaves_room_for_is_looked_at(make_log):
    log = leading(make_log)
    assert told(log) == 5_000
    log.partition.truncater.truncate_to(3, below_high_watermark=True)
    for offset in range(3, 6):
        log.append([7_000 + offset], now=10)
    advance(log, 6)
    assert told(log) == 7_005


def test_the_time_of_a_marker_makes_no_record_late(make_log):
    log = make_log(retention_max_eventtime_ms=1_000).create()
    log.append([5_000], now=90_000)
    log.partition.append_marker(9, 0, is_commit=True, coordinator_epoch=0, now_ms=90_000)
    assert log.append([6_000], now=90_000).anomaly is None
    assert log.partition.arrivals.late_batches == 0


def test_a_time_that_was_taken_back_makes_no_record_late(make_log):
    day_ms = 86_400_000
    log = make_log(retention_ms=-1, retention_max_eventtime_ms=day_ms).create()
    log.append([900 * day_ms], now=900 * day_ms)
    log.partition.append_clock.note_step_back(90 * day_ms)
    assert log.append([90 * day_ms], now=90 * day_ms).anomaly is None
