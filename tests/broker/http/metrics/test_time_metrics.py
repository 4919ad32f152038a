"""Metrics of time, as an operator sees them: real produce requests, a manual clock, and /metrics.

What is counted is stated in tests/storage/time, with mistakes injected.
"""

import re
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.conftest import of_module
from tests.broker.subject import json_at
from tests.oracle.recordset import batch
from tidelog.cli.parser import main

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000
INVALID_TIMESTAMP = 32


one = of_module({"clock": "manual"})


@pytest.fixture
def broker(one):
    """The broker of this file, at new year."""
    one.clock.freeze(NOW_MS)
    return one


def produce(connection, topic, *times, error=0, **more):
    """One batch with a record of each time; a list of times is one batch, too."""
    records = [record for time in times for record in asking.values("x", timestamp=time)]
    answer = asking.produce(connection, topic, batch(records), **more)
    assert answer["error_code"] == error, answer
    return answer


def new_topic(connection, **settings):
    return asking.new_topic(connection, **settings)


def bucket(broker, name, topic, bound):
    return broker.metric(f"tidelog_{name}_bucket", topic=topic, le=bound)


def test_append_minus_event_time_is_a_histogram_with_the_future_apart(broker, connection):
    topic = new_topic(connection)
    for time in (NOW_MS, NOW_MS - 10, NOW_MS - 11, NOW_MS - 2 * HOUR_MS, NOW_MS + 1):
        produce(connection, topic, time)
    counts = {
        bound: bucket(broker, "append_delay_seconds", topic, bound)
        for bound in ("-0.001", "0.0", "0.01", "0.1", "3600.0", "21600.0", "+Inf")
    }
    assert counts == {
        "-0.001": 1,
        "0.0": 2,
        "0.01": 3,
        "0.1": 4,
        "3600.0": 4,
        "21600.0": 5,
        "+Inf": 5,
    }
    assert broker.metric("tidelog_append_delay_seconds_count", topic=topic) == 5
    assert broker.metric("tidelog_append_delay_seconds_sum", topic=topic) == 0  # there is none
    assert broker.metric("tidelog_max_latency_seconds", topic=topic) == 2 * 3600


def test_the_largest_latency_is_no_absurd_stamp_and_survives_a_restart(broker, connection):
    topic, other = new_topic(connection), new_topic(connection)
    latency = lambda name: broker.metric("tidelog_max_latency_seconds", topic=name)
    for time in (-14_182_980_000, NOW_MS + DAY_MS, NOW_MS - HOUR_MS, -(2**63), NOW_MS):
        produce(connection, topic, time)
    produce(connection, other, NOW_MS - 50)
    assert (latency(topic), latency(other)) == (3600, 0.05)
    assert broker.metric("tidelog_max_lateness_seconds", topic=topic) == 7200
    broker.restart()
    broker.clock.freeze(NOW_MS)
    assert (latency(topic), latency(other)) == (3600, 0.05), "before anybody opened the logs"
    with broker.connect() as again:
        produce(again, topic, NOW_MS - 1)
        assert latency(topic) == 3600
        assert broker.metric("tidelog_late_batches_total", topic=topic) == 1, "what was reached"
        produce(again, topic, NOW_MS - 2 * HOUR_MS)
        assert latency(topic) == 7200


def test_late_batches_are_counted_by_partition_and_summed_by_topic(broker, connection):
    topic = asking.new_topic(connection, 2)
    produce(connection, topic, NOW_MS - 1)
    produce(connection, topic, NOW_MS - 5_001, NOW_MS - 4_001)  # 5 s late, two records
    produce(connection, topic, NOW_MS - 1)  # as late as the largest: not late
    produce(connection, topic, NOW_MS - HOUR_MS, partition=1)  # the first one there
    assert broker.metric("tidelog_late_batches_total", topic=topic) == 1
    assert broker.metric("tidelog_late_records_total", topic=topic) == 2
    assert broker.metric("tidelog_max_lateness_seconds", topic=topic) == 5
    assert bucket(broker, "lateness_seconds", topic, "1.0") == 0
    assert bucket(broker, "lateness_seconds", topic, "10.0") == 1


# --- doomed on arrival ---------------------------------------------------------------------------


def doomed(broker, topic, policy="retention.ms"):
    return broker.metric("tidelog_doomed_records_total", topic=topic, policy=policy)


def doom_lines(broker, topic):
    return broker.lines("records expired on arrival", f"topic={topic} ")


def test_doomed_on_arrival_is_counted_and_logged_once_a_minute(broker, connection):
    topic = new_topic(connection, **{"retention.ms": str(DAY_MS)})
    produce(connection, topic, NOW_MS - DAY_MS)  # as old as may be: not doomed
    assert doomed(broker, topic) == 0
    produce(connection, topic, NOW_MS - DAY_MS - 2, NOW_MS - DAY_MS - 1)
    assert doomed(broker, topic) == 2
    (line,) = doom_lines(broker, topic)
    assert f"records=2 newest_ms={NOW_MS - DAY_MS - 1} newest=2025-12-30T23:59:59.999Z" in line
    assert f"policy=retention.ms limit_ms={DAY_MS} beyond_ms=1" in line
    assert "retention.time.basis=append" in line
    broker.clock.step("59s")
    produce(connection, topic, NOW_MS - 2 * DAY_MS)
    assert (doomed(broker, topic), len(doom_lines(broker, topic))) == (3, 1)
    broker.clock.step("1s")
    produce(connection, topic, NOW_MS - 2 * DAY_MS)
    assert doomed(broker, topic) == 4
    assert "records=2 " in doom_lines(broker, topic)[1]  # with the one that was not told of
    other = new_topic(connection, **{"retention.ms": str(DAY_MS)})
    produce(connection, other, NOW_MS - 2 * DAY_MS)
    assert len(doom_lines(broker, other)) == 1  # each topic has its own minute


def test_a_changed_setting_holds_from_the_next_append_on(broker, connection):
    topic = new_topic(connection)
    old = NOW_MS - 6 * DAY_MS
    produce(connection, topic, old)
    produce(connection, topic, old)
    assert doomed(broker, topic) == 0
    change = ("retention.ms", 0, str(DAY_MS))
    assert asking.alter(connection, asking.TOPIC, topic, change)[0] == 0
    produce(connection, topic, old)
    assert doomed(broker, topic) == 1


# --- another unit --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "timestamp", "meant"),
    [
        ("seconds", 1_700_000_000, "2023-11-14T22:13:20.000Z"),
        ("microseconds", 1_700_000_000_000_000, "2023-11-14T22:13:20.000Z"),
        ("nanoseconds", 1_700_000_000_000_000_000, "2023-11-14T22:13:20.000Z"),
    ],
)
def test_a_wrong_unit_is_counted_and_logged(broker, connection, unit, timestamp, meant):
    topic = new_topic(connection)
    suspects = lambda: broker.metric("tidelog_suspect_time_batches_total", topic=topic, unit=unit)
    told = lambda: broker.lines("record times in a wrong unit arrived", f"topic={topic} ")
    produce(connection, topic, timestamp, timestamp)
    produce(connection, topic, timestamp)
    assert suspects() == 2
    (line,) = told()
    assert f"timestamp={timestamp} looks_like={unit} meant={meant} " in line
    assert "batches=1" in line
    broker.clock.step("60s")
    produce(connection, topic, timestamp)
    assert "batches=2" in told()[1]
    assert suspects() == 3
    # It would say nothing of the topic: the longest delay is that of times that can be.
    assert broker.metric("tidelog_max_latency_seconds", topic=topic) == 0


# --- the zero times of clients -------------------------------------------------------------------

GO_MS, YEAR_1_MS = -6_795_364_578_871, -62_135_596_800_000


def test_a_zero_time_is_counted_and_logged_once_with_the_command_that_helps(
    broker, connection, capsys
):
    topic = new_topic(connection, **{"message.timestamp.missing.values": "0"})
    zeros = lambda time: broker.metric(
        "tidelog_zero_time_batches_total", topic=topic, time=str(time)
    )
    lines = lambda: broker.lines("record time looks like a missing time", f"topic={topic} ")
    doctor = lambda: json_at(broker.http, f"/v1/doctor?topic={topic}")[1]["findings"]
    produce(connection, topic, YEAR_1_MS, NOW_MS)
    produce(connection, topic, GO_MS)
    broker.clock.step("1h")
    produce(connection, topic, YEAR_1_MS)
    assert (zeros(YEAR_1_MS), zeros(GO_MS)) == (2, 1)
    (line,) = lines()
    assert f'timestamp={YEAR_1_MS} looks_like="year 1, the zero time of Go and .NET"' in line
    command = re.search("`(.*)`", line)[1]
    values = f"{YEAR_1_MS},{GO_MS},0"
    assert command == f"tidelog configs set {topic} message.timestamp.missing.values={values}"
    (found,) = doctor()
    assert (found["finding"], found["command"]) == ("zero times of clients", command)
    assert main([*command.split()[1:], "--broker", broker.bootstrap]) == 0
    capsys.readouterr()
    produce(connection, topic, GO_MS, YEAR_1_MS)
    assert (zeros(YEAR_1_MS), zeros(GO_MS), len(lines())) == (2, 1, 1)
    assert broker.metric("tidelog_batches_without_time_total", topic=topic) == 1
    (found,) = doctor()
    assert "New records do not get it" in found["sentence"]


def test_a_zero_time_that_has_been_deleted_or_refused_is_named(broker, connection):
    window = {"message.timestamp.before.max.ms": str(DAY_MS)}
    for settings, error in (({}, 0), (window, INVALID_TIMESTAMP)):
        topic = new_topic(connection, **settings)
        produce(connection, topic, GO_MS, error=error)
        assert len(broker.sweep(topic)) == (not error)
        assert broker.metric("tidelog_zero_time_batches_total", topic=topic, time=str(GO_MS)) == 1
        (line,) = broker.lines("message.timestamp.missing.values", f"topic={topic} ")
        assert f'timestamp={GO_MS} looks_like="the zero time of Go in nanoseconds' in line
        found = json_at(broker.http, f"/v1/doctor?topic={topic}")[1]["findings"]
        assert [each["figure"] for each in found] == ([] if error else [1])


# --- the window ----------------------------------------------------------------------------------


def test_what_the_window_refuses_is_counted_and_its_unit_noticed(broker, connection):
    topic = new_topic(connection, **{"message.timestamp.difference.max.ms": str(HOUR_MS)})
    produce(connection, topic, NOW_MS)
    produce(connection, topic, NOW_MS, NOW_MS + 2 * HOUR_MS, 5, error=INVALID_TIMESTAMP)
    produce(connection, topic, NOW_MS * 1000, error=INVALID_TIMESTAMP)
    assert broker.metric("tidelog_window_refused_batches_total", topic=topic) == 2
    assert broker.metric("tidelog_window_refused_records_total", topic=topic) == 3
    suspects = broker.metric("tidelog_suspect_time_batches_total", topic=topic, unit="microseconds")
    assert suspects == 1
    stamped = batch(asking.values("x", timestamp=NOW_MS), attributes=0x08)  # the bit, no window
    assert asking.produce(connection, topic, stamped)["error_code"] == INVALID_TIMESTAMP
    assert broker.metric("tidelog_window_refused_batches_total", topic=topic) == 2


# --- what is kept, and what goes next ------------------------------------------------------------


def test_oldest_and_newest_times_and_the_next_expiry(broker, connection):
    topic = new_topic(connection, **{"retention.ms": str(DAY_MS), "segment.ms": str(HOUR_MS)})
    value = lambda name: broker.metric(name, topic=topic)
    expiry = lambda: broker.metric(
        "tidelog_next_expiry_seconds", topic=topic, policy="retention.ms"
    )
    produce(connection, topic, NOW_MS - 7 * SECOND_MS)
    broker.clock.step("2h")
    produce(connection, topic, NOW_MS + 2 * HOUR_MS)  # rolls
    assert value("tidelog_oldest_event_time_ms") == NOW_MS - 7 * SECOND_MS
    assert value("tidelog_largest_record_time_ms") == NOW_MS + 2 * HOUR_MS
    assert value("tidelog_oldest_append_time_ms") == NOW_MS
    assert value("tidelog_newest_append_time_ms") == NOW_MS + 2 * HOUR_MS
    assert expiry() == (DAY_MS - 2 * HOUR_MS - 7 * SECOND_MS + 1) / 1000
    broker.clock.step(DAY_MS - 2 * HOUR_MS - 7 * SECOND_MS)
    assert broker.sweep(topic) == []
    assert expiry() == 0.001
    broker.clock.step(1)
    assert expiry() == 0
    (gone,) = broker.sweep(topic)
    assert gone["end_offset"] == 1
    assert value("tidelog_oldest_event_time_ms") == NOW_MS + 2 * HOUR_MS
    assert expiry() == (2 * HOUR_MS + 7 * SECOND_MS) / 1000  # the other one's


def test_an_append_time_ahead_of_the_clock_shows(broker, connection):
    topic = new_topic(connection)
    produce(connection, topic, NOW_MS)
    assert f'topic="{topic}"' not in ahead_lines(broker)
    broker.clock.step("-9s")
    assert broker.metric("tidelog_append_time_ahead_ms", topic=topic, partition="0") == 9_000
    broker.clock.set(NOW_MS - HOUR_MS)  # more than ten seconds are corrected
    assert f'topic="{topic}"' not in ahead_lines(broker)
    finding = {"topic": topic, "finding": "corrections in force"}
    assert broker.metric("tidelog_time_findings", **finding) == 1


def ahead_lines(broker):
    lines = broker.page("/metrics").splitlines()
    return "\n".join(line for line in lines if line.startswith("tidelog_append_time_ahead_ms{"))


def test_findings_are_counted_by_partition_and_go_with_their_cause(broker, connection):
    topic = new_topic(connection, **{"retention.ms": "-1", "segment.ms": str(2**63 - 1)})
    name = "tidelog_time_findings"
    produce(connection, topic, NOW_MS)
    assert broker.metric(name, topic=topic) == 0  # nothing waits for the segment's end
    change = ("retention.ms", 0, str(DAY_MS))
    assert asking.alter(connection, asking.TOPIC, topic, change)[0] == 0
    assert broker.metric(name, topic=topic, finding="segment cannot roll") == 1
    change = ("segment.ms", 0, str(DAY_MS))
    assert asking.alter(connection, asking.TOPIC, topic, change)[0] == 0
    assert broker.metric(name, topic=topic) == 0
    produce(connection, topic, NOW_MS * 1000)
    assert broker.metric(name, topic=topic, finding="times in a wrong unit") == 1
    assert broker.metric(name, topic=topic) == 1


def test_a_deleted_topic_leaves_no_metric_behind(broker, connection):
    topic = new_topic(connection, **{"retention.ms": "1"})
    produce(connection, topic, 1_700_000_000)
    assert f'topic="{topic}"' in broker.page("/metrics")
    answer = connection.ask("DeleteTopics", 1, topic_names=[topic], timeout_ms=10_000)
    assert answer["responses"][0]["error_code"] == 0
    assert f'topic="{topic}"' not in broker.page("/metrics")


def test_every_metric_is_on_its_page_and_the_other_way_round(broker):
    told = {
        line.split()[2].removesuffix("_total")
        for line in broker.page("/metrics").splitlines()
        if line.startswith("# HELP ") and not line.startswith(("# HELP process_", "# HELP python_"))
    }
    page = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
    declared = {
        name.removesuffix("_total").removesuffix("_bucket")
        for name in re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    }
    assert told == declared
