"""/v1 over HTTP: both times, lookups by either, retention explained; and that nothing else waits for it."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy, of_module
from tests.broker.subject import eventually, json_at
from tests.oracle import recordset
from tests.oracle.recordset import Rec

NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
NONE = {"timestamp_ms": None, "timestamp": None, "append_time_ms": None, "append_time": None}


one = of_module({"clock": "manual", "log.retention.check.interval.ms": 10**15})


@pytest.fixture
def broker(one):
    """The broker of this file, at new year, nothing injected."""
    one.clock.freeze("2026-01-01T00:00Z")
    yield one
    one.faults.clear()


@pytest.fixture
def topic(connection):
    """A topic that keeps everything."""
    return asking.new_topic(connection, partitions=2, retention_ms="-1")


def ask(broker, path):
    """Status and JSON at a path below /v1."""
    return json_at(broker.http, f"/v1{path}")


def told(broker, path):
    status, answer = ask(broker, path)
    assert status == 200, answer
    return answer


def produce(connection, topic, *times, **more):
    records = recordset.batch([Rec(time, b"v") for time in times])
    answer = asking.produce(connection, topic, records, **more)
    assert answer["error_code"] == 0
    return answer["base_offset"]


def found(broker, topic, question, partition=0):
    """The offset and both times that one partition answers with, in ms."""
    answer = told(broker, f"/topics/{topic}/offsets?{question}&partition={partition}")
    (row,) = answer["partitions"]
    return row["offset"], row["timestamp_ms"], row["append_time_ms"]


# --- lookups by record time ----------------------------------------------------------------------


def test_a_time_is_written_in_many_ways(broker, topic):
    """All of them are stated in tests/config/test_instants.py; what is answered is one of them."""
    for text, time in (
        ("2026-01-01T02:00:00%2B02:00", NEW_YEAR_MS),
        ("now", NEW_YEAR_MS),
        ("-2h", NEW_YEAR_MS - 2 * HOUR_MS),
        ("9223372036854775807", 2**63 - 1),
        ("-12044-03-15T12:00Z", -63_549_316_800_000 - 30 * 146_097 * 24 * HOUR_MS),
    ):
        answer = told(broker, f"/topics/{topic}/offsets?at={text}")
        assert answer["at_ms"] == time
        again = told(broker, f"/topics/{topic}/offsets?at={quote(answer['at'])}")
        assert (again["at_ms"], again["at"]) == (time, answer["at"])


def test_without_a_time_the_ends_are_told(broker, connection, topic):
    produce(connection, topic, 50, 70, 60)
    first, empty = told(broker, f"/topics/{topic}/offsets")["partitions"]
    assert (first["log_start_offset"], first["end_offset"]) == (0, 3)
    assert [first[each]["offset"] for each in ("first", "last", "largest")] == [0, 2, 1]
    assert first["largest"]["timestamp"] == "1970-01-01T00:00:00.070Z"
    assert empty["first"] == empty["last"] == empty["largest"] == {"offset": -1, **NONE}


# --- append times --------------------------------------------------------------------------------


def test_append_times_are_found(broker, connection, topic):
    for hours in range(3):
        broker.clock.freeze(NEW_YEAR_MS + hours * HOUR_MS)
        assert produce(connection, topic, 5) == hours
    expected = {
        "-3h": (0, 5, NEW_YEAR_MS),
        "-2h": (0, 5, NEW_YEAR_MS),
        "-1h59m59.999s": (1, 5, NEW_YEAR_MS + HOUR_MS),
        "-1h": (1, 5, NEW_YEAR_MS + HOUR_MS),
        "now": (2, 5, NEW_YEAR_MS + 2 * HOUR_MS),
        "%2B1ms": (-1, None, None),
    }
    for at, answer in expected.items():
        assert found(broker, topic, f"appended-at={at}") == answer, at


def test_what_nobody_knows_of_somebody_elses_log_is_null(tmp_path):
    """A log that Kafka wrote has no append times; what is appended here has."""
    data = tmp_path / "data"
    for name in ("f-0.10.2-CreateTime-none-c0102-0", "f-0.10.2-LogAppendTime-none-c0901-0"):
        shutil.copytree(VECTORS / name, data / name)
    topic = "f-0.10.2-CreateTime-none-c0102"
    with healthy(tmp_path, {"clock": "manual", "clock.start.ms": NEW_YEAR_MS}) as broker:
        answer = told(broker, f"/topics/{topic}/partitions/0/records/7/times")
        assert answer["timestamp_ms"] == 1_500_000_007_000
        assert (answer["append_time_ms"], answer["append_time"]) == (None, None)
        assert found(broker, topic, "at=1500000007000") == (7, 1_500_000_007_000, None)
        (row,) = told(broker, f"/topics/{topic}/offsets?appended-at=-1h")["partitions"]
        assert row["offset"] is None
        assert row["unknown"] == {"start_offset": 0, "end_offset": 200}
        size = sum(path.stat().st_size for path in (data / f"{topic}-0").glob("*.log"))
        assert broker.metric("tidelog_append_times_unknown_bytes", topic=topic) == size > 0
        with broker.connect() as connection:
            produce(connection, topic, 5)
        (row,) = told(broker, f"/topics/{topic}/offsets?appended-at=now")["partitions"]
        assert row["offset"] is None, "the last of Kafka's may be of this millisecond"
        assert row["unknown"] == {"start_offset": 0, "end_offset": 200}
        assert row["offsets_before"] == 0
        broker.clock.step("1h")
        with broker.connect() as connection:
            produce(connection, topic, 5)
        (row,) = told(broker, f"/topics/{topic}/offsets?appended-at=-30m")["partitions"]
        assert (row["offset"], row["unknown"]) == (201, None), "what is unknown came earlier"
        (explained,) = told(broker, f"/topics/{topic}/explain")["partitions"]
        unknown = [s["has_unknown_append_times"] for s in explained["segments"]]
        assert True in unknown
        assert explained["segments"][0]["first_append_time"] is None
        assert explained["segments"][0]["held_by"] == "no policy"
        stamped = "f-0.10.2-LogAppendTime-none-c0901"
        answer = told(broker, f"/topics/{stamped}/partitions/0/records/0/times")
        assert answer["timestamp_type"] == "LogAppendTime"
        assert answer["append_time_ms"] is None, (
            "a stamp is Kafka's record time, not ours to vouch for"
        )


# --- explained -----------------------------------------------------------------------------------


def test_a_preview_tells_what_the_change_then_deletes(broker, connection):
    topic = asking.new_topic(connection, retention_ms="-1", segment_bytes="100")
    for minutes in range(6):
        produce(connection, topic, NEW_YEAR_MS + 60_000 * minutes)
        broker.clock.step("1m")
    broker.clock.step("1h")
    answer = told(broker, f"/topics/{topic}/explain?set=retention.ms=63m&set=retention.bytes=-1")
    (partition,) = answer["partitions"]
    assert answer["preview"] == {"retention.ms": "3780000", "retention.bytes": "-1"}
    assert answer["settings"]["retention.ms"] == 3_780_000
    assert partition["going_as_it_is"]["segments"] == 0
    (row,) = told(broker, f"/topics/{topic}/explain")["partitions"]
    assert "going_as_it_is" not in row
    assert broker.sweep(topic) == [], "looking changes nothing"
    error, _ = asking.alter(connection, asking.TOPIC, topic, ("retention.ms", 0, "3780000"))
    assert error == 0
    gone = broker.sweep(topic)
    assert partition["going"] == {
        "segments": len(gone),
        "records": sum(each["end_offset"] - each["base_offset"] for each in gone),
        "bytes": sum(each["size"] for each in gone),
        "policies": ["retention.ms"],
    }
    assert len(gone) == 3
    for each in gone:  # the log names the policy and both times
        times = str(each["largest_time_ms"]), str(each["last_append_time_ms"])
        assert broker.lines("retention deleted segment", topic, "retention.ms", *times)


def test_a_preview_of_event_time_brings_its_basis_along(broker, topic):
    answer = told(broker, f"/topics/{topic}/explain?set=retention.max.eventtime.ms=1d")
    assert answer["preview"]["retention.time.basis"] == "append"
    assert answer["settings"]["retention.time.basis"] == "append"
    assert answer["settings"]["retention.max.eventtime.ms"] == 24 * HOUR_MS
    assert told(broker, f"/topics/{topic}/explain")["settings"]["retention.time.basis"] == "record"


# --- mistakes ------------------------------------------------------------------------------------


MISTAKES = {
    (404, "UNKNOWN_TOPIC_OR_PARTITION"): (
        "/topics/nobody/offsets",
        "/topics/nobody/explain",
        f"/topics/{'x' * 3000}/offsets",
        "/topics/%00/offsets",
        "/topics/../offsets",
        "/topics/T/offsets?partition=2",
        "/topics/T/offsets?partition=-1",
        "/topics/T/offsets?partition=",
        "/topics/T/offsets?partition=%D9%A1",
        f"/topics/T/offsets?partition={'9' * 30}",
        "/topics/T/partitions/2/records/0/times",
    ),
    (400, "BAD_REQUEST"): (
        "/topics/T/offsets?partition=0&partition=1",
        "/topics/T/offsets?at=1&appended-at=1",
        "/topics/T/offsets?appended-at=1&capped=true",
        "/topics/T/offsets?at=1&isolation=none",
        "/topics/T/offsets?at=-1&shift=maybe",
        "/topics/T/partitions/0/records/0/times?next=2",
        "/topics/T/explain?set=retention.ms",
        "/topics/T/explain?set=retention.ms=1&set=retention.ms=2",
    ),
    (400, "UNKNOWN_PARAMETER"): (
        "/topics/T/offsets?At=1",
        "/topics/T/partitions/0/records/0/times?x=1",
    ),
    (400, "BAD_TIME"): (
        "/topics/T/offsets?at=",
        "/topics/T/offsets?at=2026-01-01T00:00",
        "/topics/T/offsets?at=2h",
        "/topics/T/offsets?at=9223372036854775808",
        f"/topics/T/offsets?at={'9' * 2000}",
    ),
    (400, "NO_TIME"): ("/topics/T/offsets?appended-at=1969-12-31T23:59:59.999Z",),
    (404, "OFFSET_OUT_OF_RANGE"): (
        "/topics/T/partitions/0/records/0/times",
        "/topics/T/partitions/0/records/9223372036854775807/times",
        "/topics/T/partitions/0/records/9223372036854775807/times?next=true",
    ),
    (400, "BAD_OFFSET"): (
        "/topics/T/partitions/0/records/9223372036854775808/times",
        "/topics/T/partitions/0/records/-1/times",
        "/topics/T/partitions/0/records/1e3/times",
    ),
    (400, "INVALID_CONFIG"): (
        "/topics/T/explain?set=retention.m=1",
        "/topics/T/explain?set=retention.ms=soon",
    ),
    (404, "NOT_FOUND"): ("/nothing", "/", f"/{'x' * 3000}"),
}


def test_a_mistake_is_told_in_a_sentence(broker, topic):
    for expected, paths in MISTAKES.items():
        for path in paths:
            status, answer = ask(broker, path.replace("/T/", f"/{topic}/"))
            assert (status, answer["error"]) == expected, path
            assert len(answer["message"].split()) > 2
            assert len(answer["message"]) < 500


def test_only_reading_is_served(broker, topic):
    url = f"http://{broker.http}/v1/topics/{topic}/offsets"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=60)
    with refused.value as error:
        assert (error.code, json.load(error)["error"]) == (405, "METHOD_NOT_ALLOWED")


# --- beside everything else ----------------------------------------------------------------------


def test_a_partition_that_fails_says_so_in_its_place(broker, connection, topic):
    for partition in (0, 1):
        produce(connection, topic, 5, partition=partition)
    broker.faults.add(storage="read", topic=topic, partition=1, error="EIO")
    rows = told(broker, f"/topics/{topic}/offsets?at=1")["partitions"]
    assert [row.get("offset") for row in rows] == [0, None]
    assert rows[1]["error"] == "KAFKA_STORAGE_ERROR"
    status, answer = ask(broker, f"/topics/{topic}/offsets?at=1&partition=1")
    assert (status, answer["error"]) == (503, "KAFKA_STORAGE_ERROR")


def test_a_slow_lookup_holds_up_no_stop(start):
    broker = start({"clock": "manual"})
    with broker.connect() as connection:
        asking.create(connection, "slow")
        produce(connection, "slow", 5)
    fault = broker.faults.add(storage="read", topic="slow", delay="1h")

    def look():
        with contextlib.suppress(OSError, ValueError, KeyError):  # the broker has gone
            ask(broker, "/topics/slow/offsets?at=5")

    threads = [threading.Thread(target=look, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: fault.hits >= 2, what="both threads are held")
    assert broker.stop() == 0
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
