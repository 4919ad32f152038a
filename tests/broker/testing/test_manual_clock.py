"""Everything of the log follows the broker's clock; sockets do not."""

import pytest

from tests.broker import asking
from tests.broker.conftest import of_module
from tests.broker.subject import eventually
from tidelog.control import ControlError

NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
EARLIEST = -2


one = of_module({"clock": "manual"})


@pytest.fixture
def broker(one):
    """The broker of this file, at new year."""
    one.clock.freeze("2026-01-01T00:00Z")
    return one


def produce(connection, topic, timestamp=5, text="x" * 200):
    records = asking.recordset.batch(asking.values(text, timestamp=timestamp))
    return asking.produce(connection, topic, records)


def start_of(connection, topic):
    return asking.list_offset(connection, topic, EARLIEST)["offset"]


def test_stamps_follow_and_wait_for_ten_seconds(broker, connection):
    topic = asking.new_topic(connection, **{"message.timestamp.type": "LogAppendTime"})
    stamp = lambda: produce(connection, topic)["log_append_time_ms"]
    assert [stamp(), stamp()] == [NEW_YEAR_MS, NEW_YEAR_MS]
    broker.clock.step("1h")
    assert stamp() == NEW_YEAR_MS + HOUR_MS
    broker.clock.set(NEW_YEAR_MS + HOUR_MS - 10_000)
    assert stamp() == NEW_YEAR_MS + HOUR_MS  # the partition's time stands still until then
    broker.clock.set(NEW_YEAR_MS + HOUR_MS - 10_001)
    assert stamp() == NEW_YEAR_MS + HOUR_MS - 10_001  # further back, the clock was wrong
    broker.clock.set(NEW_YEAR_MS + HOUR_MS + 1)
    assert stamp() == NEW_YEAR_MS + HOUR_MS + 1
    broker.clock.set(2**63 - 1)
    assert stamp() == 2**63 - 1
    fresh = asking.new_topic(connection, **{"message.timestamp.type": "LogAppendTime"})
    broker.clock.set(-5)
    assert produce(connection, fresh)["log_append_time_ms"] == -5


def test_seven_days_of_retention_in_no_time(broker, connection):
    """The defaults of Kafka: retention.ms and segment.ms of seven days, a look every five minutes."""
    topic = asking.new_topic(connection)
    broker.clock.step(300_000)
    broker.clock.step(-300_000)
    for day in range(10):  # a record a day
        produce(connection, topic, NEW_YEAR_MS + day * DAY_MS)
        broker.clock.step("1d")
    # The eighth day rolled; the record of the seventh is not yet older than seven days.
    assert start_of(connection, topic) == 0
    broker.clock.step("4d")
    assert start_of(connection, topic) == 0
    broker.clock.step("1ms")
    assert start_of(connection, topic) == 0  # it is time, and nobody has looked
    (gone,) = broker.sweep(topic)
    assert (gone["end_offset"], gone["policy"], gone["limit"]) == (8, "retention.ms", 7 * DAY_MS)
    assert start_of(connection, topic) == 8
    broker.clock.step("7d")
    assert start_of(connection, topic) == 10  # the step came upon the broker's own round
    (gone,) = broker.sweep(topic)
    assert (gone["base_offset"], gone["end_offset"], gone["asked"]) == (8, 10, False)


def test_a_step_over_the_interval_is_one_round(broker, connection):
    topic = asking.new_topic(connection, **{"retention.ms": "1"})
    broker.clock.step(300_000)  # from here on the next round is five minutes away
    produce(connection, topic)
    assert start_of(connection, topic) == 0
    broker.clock.step(299_999)
    assert start_of(connection, topic) == 0
    broker.clock.step(1)
    assert start_of(connection, topic) == 1
    produce(connection, topic)
    broker.clock.step(-DAY_MS)
    broker.clock.step(DAY_MS)  # going back took nothing away, so this passes the interval
    assert start_of(connection, topic) == 2


def test_a_frozen_broker_still_closes_idle_connections(start):
    broker = start({"clock": "manual", "connections.max.idle.ms": "200"})
    with broker.connect() as connection:
        eventually(lambda: connection.ask("ApiVersions", 0), what="to be heard before the chore")
        assert connection.receive() is None
    eventually(lambda: broker.lines("idle connections closed"), what="the chore to say so")


def test_a_frozen_broker_still_lets_a_fetch_wait_no_longer_than_it_asked(broker, connection):
    topic = asking.new_topic(connection)
    assert asking.fetch(connection, topic, max_wait_ms=50, min_bytes=1)["error_code"] == 0


@pytest.mark.slow
def test_time_goes_on_through_restarts(broker, connection):
    topic = asking.new_topic(connection, **{"message.timestamp.type": "LogAppendTime"})
    broker.clock.step("30d")
    broker.restart()
    connection.close()
    assert broker.clock.now_ms() == NEW_YEAR_MS + 30 * DAY_MS
    assert produce(connection, topic)["log_append_time_ms"] == NEW_YEAR_MS + 30 * DAY_MS
    broker.clock.run(1000)
    broker.kill()
    broker.restart()
    assert broker.clock.now_ms() > NEW_YEAR_MS + 30 * DAY_MS
    first = broker.clock.now_ms()
    eventually(lambda: broker.clock.now_ms() > first + 1000)


def append_time(broker, method, topic, partition=0):
    path = f"/v1/topics/{topic}/partitions/{partition}/append-time"
    return broker.ask_control(method, path)


def test_append_time_goes_back_when_an_operator_lets_it(broker, connection):
    """After a clock that was ahead by less than append times wait for; through kill -9 as well."""
    topic = asking.new_topic(connection, **{"message.timestamp.type": "LogAppendTime"})
    stamp = lambda: produce(connection, topic)["log_append_time_ms"]
    ahead = lambda: broker.metric("tidelog_append_time_ahead_ms", topic=topic)
    broker.clock.step("9s")
    wrong_ms = stamp()
    assert append_time(broker, "POST", topic)["ahead_ms"] == 0
    broker.clock.set(NEW_YEAR_MS)
    assert (stamp(), ahead()) == (wrong_ms, 9_000)
    told = {
        "topic": topic,
        "partition": 0,
        "last_append_time_ms": wrong_ms,
        "last_append_time": "2026-01-01T00:00:09.000Z",
        "now_ms": NEW_YEAR_MS,
        "now": "2026-01-01T00:00:00.000Z",
        "ahead_ms": 9_000,
    }
    assert append_time(broker, "GET", topic) == append_time(broker, "POST", topic) == told
    assert (stamp(), ahead()) == (NEW_YEAR_MS, 0)
    broker.clock.step("-1s")
    assert stamp() == NEW_YEAR_MS  # once
    went_back = "level=warning", "append times reset to the clock"
    assert broker.lines(*went_back, f"topic={topic}", f"from={wrong_ms}")
    broker.kill()
    broker.restart()
    connection.close()
    assert stamp() == NEW_YEAR_MS
    broker.clock.step("365d")
    wrong_ms = stamp()
    broker.clock.set(NEW_YEAR_MS + 1)
    assert [stamp(), stamp()] == [NEW_YEAR_MS + 1] * 2, "by itself, with a clock that was wrong"
    assert ahead() == 0
    assert broker.lines(*went_back, f"topic={topic}", f"from={wrong_ms}")


@pytest.mark.parametrize("partition", [7, "x", "9" * 30])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_of_a_partition_that_is_none(broker, connection, method, partition):
    with pytest.raises(ControlError) as caught:
        append_time(broker, method, "nobody's", partition)
    assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"
