"""What a wrong clock does to logs, and its correction: nothing is deleted early, nothing is kept for ever."""

import json

import pytest

from tests.broker.logs.maintenance.test_clock_watch import (
    DAY_MS,
    MINUTE_MS,
    NEW_YEAR_MS,
    accept,
    start_of,
)
from tests.broker.logs.maintenance.test_clock_watch import new_topic as a_topic
from tests.broker.logs.maintenance.test_clock_watch import produce as produce_at


@pytest.fixture
def broker(start):
    return start({"clock": "manual", "clock.start.ms": NEW_YEAR_MS})


def new_topic(connection):
    """A topic that keeps what was written in the last seven days."""
    return a_topic(connection, **{"retention.time.basis": "append"})


def produce(connection, topic):
    produce_at(connection, topic, NEW_YEAR_MS)


def segments_of(broker, topic):
    (partition,) = json.loads(broker.page(f"/v1/topics/{topic}/explain"))["partitions"]
    return [segment["base_offset"] for segment in partition["segments"]]


def append_time(broker, topic, offset):
    path = f"/v1/topics/{topic}/partitions/0/records/{offset}/times"
    return json.loads(broker.page(path))["append_time_ms"]


def test_a_leap_and_the_way_back_each_begin_a_segment(broker, connection):
    topic = new_topic(connection)
    produce(connection, topic)
    broker.clock.leap("1h")
    produce(connection, topic)
    produce(connection, topic)
    broker.clock.leap("-1h")
    produce(connection, topic)
    assert segments_of(broker, topic) == [0, 1, 3]
    hour_ms = 60 * MINUTE_MS
    assert [append_time(broker, topic, offset) - NEW_YEAR_MS for offset in range(4)] == [
        0,
        hour_ms,
        hour_ms,
        0,
    ]


def test_records_of_a_clock_that_was_ahead_go_as_if_it_had_been_right(broker, connection):
    topic = new_topic(connection)
    broker.clock.leap("3650d")
    produce(connection, topic)
    broker.clock.leap("-3650d")
    produce(connection, topic)
    broker.clock.step(7 * DAY_MS)
    broker.sweep()
    assert start_of(connection, topic) == 0
    broker.clock.step(1)
    broker.sweep()
    assert start_of(connection, topic) == 2


@pytest.mark.slow
@pytest.mark.parametrize("is_restarted", [False, True])
def test_records_of_a_clock_that_was_behind_stay_as_long(start, is_restarted):
    broker = start({"clock": "manual", "clock.start.ms": 10 * MINUTE_MS})
    with broker.connect() as connection:
        topic = new_topic(connection)
        produce(connection, topic)
    if is_restarted:
        broker.restart()
    broker.clock.leap(NEW_YEAR_MS)
    with broker.connect() as connection:
        for _ in range(2):
            broker.clock.step(7 * DAY_MS // 2)
            broker.sweep()
            assert start_of(connection, topic) == 0
        broker.clock.step(1)
        broker.sweep()
        assert start_of(connection, topic) == 1


@pytest.mark.slow
def test_a_log_that_is_opened_after_the_step_learns_of_it(start):
    """A restart between the step and the first use of the log: the step is stored, and pending."""
    broker = start({"clock": "manual", "clock.start.ms": 10 * MINUTE_MS})
    with broker.connect() as connection:
        topic = new_topic(connection)
        produce(connection, topic)
    broker.restart()
    broker.clock.leap(NEW_YEAR_MS)
    broker.restart()
    broker.sweep()
    with broker.connect() as connection:
        assert start_of(connection, topic) == 0
        _assert_deleted_after_a_week(broker, connection, topic)


def test_an_accepted_leap_counts_what_lies_before_as_later(broker, connection):
    topic = new_topic(connection)
    produce(connection, topic)
    broker.clock.leap("30d")
    to_ms = NEW_YEAR_MS + 30 * DAY_MS
    assert accept(broker, to_ms=to_ms)[1]["state"] == "trusted"
    _assert_deleted_after_a_week(broker, connection, topic)


def _assert_deleted_after_a_week(broker, connection, topic):
    """The first record stays for seven days from now, and not a millisecond longer."""
    broker.clock.step(7 * DAY_MS)
    broker.sweep()
    assert start_of(connection, topic) == 0
    broker.clock.step(1)
    broker.sweep()
    assert start_of(connection, topic) == 1
