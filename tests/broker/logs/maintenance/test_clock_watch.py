"""A clock that leaps, goes back, is lost, or begins in 1970: what the broker deletes, says and forgets."""

import http.client
import json
import time

import pytest

from tests.broker import asking
from tests.broker.members import commit, fetched
from tests.broker.subject import eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.storage.directory.clock_file import StoredClock, read_clock, write_clock
from tidelog.storage.time.corrections import ClockHistory
from tidelog.storage.time.trusted_clock import ClockState, Course, Reading

NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
EARLIEST = -2


@pytest.fixture
def broker(start):
    """A broker with a manual clock at new year, which its groups follow too."""
    return start({"clock": "manual", "clock.start.ms": NEW_YEAR_MS, "clock.scope": "all"})


def new_topic(connection, **more):
    return asking.new_topic(connection, **{"retention.ms": str(7 * DAY_MS), **more})


def produce(connection, topic, *times):
    for each in times:
        records = recordset.batch([Rec(each, b"v" * 100)])
        assert asking.produce(connection, topic, records)["error_code"] == 0


def start_of(connection, topic):
    return asking.list_offset(connection, topic, EARLIEST)["offset"]


def clock_of(broker):
    return json.loads(broker.page("/v1/clock"))


# --- a leap --------------------------------------------------------------------------------------


def test_a_leap_is_named_until_the_clock_is_right_again(broker):
    assert broker.page("/readyz") == "ready\n"
    assert clock_of(broker)["state"] == "trusted"
    broker.clock.leap("10d")
    assert broker.page("/readyz") == (
        "ready\nwarning: the clock shows 2026-01-11T00:00:00.000Z and has leapt: the deletion time is "
        "2026-01-01T00:00:00.000Z; `tidelog clock status` says what to do\n"
    )
    told = clock_of(broker)
    assert (told["state"], told["ahead_ms"]) == ("leapt", 10 * DAY_MS)
    assert (told["now_ms"], told["deletion_time_ms"]) == (NEW_YEAR_MS + 10 * DAY_MS, NEW_YEAR_MS)
    assert told["leap"] == {
        "from_ms": NEW_YEAR_MS,
        "from": "2026-01-01T00:00:00.000Z",
        "to_ms": NEW_YEAR_MS + 10 * DAY_MS,
        "to": "2026-01-11T00:00:00.000Z",
    }
    (line,) = broker.lines("clock leapt forward, deletion by its time suspended")
    assert "2026-01-11T00:00:00.000Z" in line
    broker.clock.leap("-10d")
    assert broker.page("/readyz") == "ready\n"
    told = clock_of(broker)
    assert (told["state"], told["ahead_ms"], told["leap"]) == ("trusted", 0, None)
    (back,) = told["steps_back"]
    assert (back["from_ms"], back["to_ms"]) == (NEW_YEAR_MS + 10 * DAY_MS, NEW_YEAR_MS)
    assert len(broker.lines("clock stepped back")) == 1


@pytest.mark.slow
def test_committed_offsets_outlive_a_leap(broker, connection):
    topic = new_topic(connection)
    commit(connection, "g", topic, 5)
    broker.clock.leap("30d")
    broker.clock.step("11m")  # a round of expiry is due
    assert fetched(connection, "g", topic)[0] == 5
    broker.clock.step("7d")
    eventually(lambda: fetched(connection, "g", topic)[0] == -1, what="the offset to expire")


@pytest.mark.slow
def test_tombstones_outlive_a_leap(broker, connection):
    topic = new_topic(
        connection,
        **{
            "cleanup.policy": "compact",
            "segment.bytes": "300",
            "delete.retention.ms": str(DAY_MS),
            "min.cleanable.dirty.ratio": "0",
        },
    )
    tombstone = recordset.batch([Rec(NEW_YEAR_MS, None, key=b"k")])
    assert asking.produce(connection, topic, tombstone)["error_code"] == 0

    def keys_after_a_cleaning():
        for number in range(3):
            update = recordset.batch([Rec(NEW_YEAR_MS, b"v" * 200, key=b"%d" % number)])
            assert asking.produce(connection, topic, update)["error_code"] == 0
        assert broker.compact(topic) != []
        found, _ = recordset.parse(asking.fetch(connection, topic, 0)["records"])
        return [record["key"] for batch in found for record in batch["records"]]

    assert b"k" in keys_after_a_cleaning()
    broker.clock.leap("30d")
    assert b"k" in keys_after_a_cleaning()
    broker.clock.step("25h")
    assert b"k" not in keys_after_a_cleaning()


@pytest.mark.slow
def test_a_leap_is_counted(broker):
    def figures():
        return (
            broker.metric("tidelog_clock_leap_ms"),
            broker.metric("tidelog_clock_leaps_total"),
            broker.metric("tidelog_clock_corrections_total", direction="back"),
            broker.metric("tidelog_clock_corrections_total", direction="forward"),
            broker.metric("tidelog_deletion_time_ms"),
        )

    assert figures() == (0, 0, 0, 0, NEW_YEAR_MS)
    broker.clock.leap("10d")
    assert figures() == (10 * DAY_MS, 1, 0, 0, NEW_YEAR_MS)
    broker.clock.leap("-10d")
    assert figures() == (0, 1, 1, 0, NEW_YEAR_MS)
    broker.clock.leap("10d")
    accept(broker, to_ms=NEW_YEAR_MS + 10 * DAY_MS)
    assert figures() == (0, 2, 1, 1, NEW_YEAR_MS + 10 * DAY_MS)


@pytest.mark.slow
def test_explain_says_what_a_leap_delays(broker, connection):
    topic = new_topic(connection)
    produce(connection, topic, NEW_YEAR_MS)
    assert "deletion_time" not in json.loads(broker.page(f"/v1/topics/{topic}/explain"))
    broker.clock.leap("30d")
    told = json.loads(broker.page(f"/v1/topics/{topic}/explain"))
    assert told["deletion_time_ms"] == NEW_YEAR_MS
    assert told["partitions"][0]["going"]["segments"] == 0
    assert told["partitions"][0]["segments"][0]["due_ms"] == NEW_YEAR_MS + 7 * DAY_MS + 1
    left_s = broker.metric("tidelog_next_expiry_seconds", topic=topic)
    assert left_s == (7 * DAY_MS + 1) / 1000


# --- a leap that is accepted ---------------------------------------------------------------------


def accept(broker, **body):
    return ask(broker, "/v1/clock/accept", json.dumps(body))


def ask(broker, path, text, headers=None):
    """Status and JSON of a POST to the HTTP port."""
    host, _, port = broker.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("POST", path, text, {"Content-Type": "application/json"} | (headers or {}))
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


def test_an_accepted_leap_is_trusted(broker, connection):
    topic = new_topic(connection)
    produce(connection, topic, NEW_YEAR_MS)
    commit(connection, "g", topic, 5)
    broker.clock.leap("30d")
    assert broker.sweep() == []
    status, told = accept(broker, to_ms=NEW_YEAR_MS + 30 * DAY_MS)
    assert (status, told["state"], told["leap"]) == (200, "trusted", None)
    (step,) = told["steps"]
    assert (step["number"], step["shift_ms"]) == (1, 30 * DAY_MS)
    assert (step["since_ms"], step["since"]) == (None, None)  # nobody knows when it began
    assert broker.page("/readyz") == "ready\n"
    assert broker.sweep() == []  # its time may be one that the clock gave while it was behind
    broker.clock.step("8d")
    assert [each["base_offset"] for each in broker.sweep()] == [0]
    assert len(broker.lines("clock stepped forward to the right time")) == 1


def test_only_the_leap_that_is_there_is_accepted(broker):
    assert accept(broker, to_ms=NEW_YEAR_MS) == (
        409,
        {"error": "NO_LEAP", "message": "the clock is trusted: there is no leap to accept"},
    )
    broker.clock.leap("30d")
    status, told = accept(broker, to_ms=NEW_YEAR_MS)
    assert (status, told["error"]) == (409, "OTHER_LEAP")
    status, told = accept(broker, at=5)
    assert (status, told["error"]) == (400, "UNKNOWN_FIELD")
    assert ask(broker, "/v1/clock/accept", "{")[1]["error"] == "BAD_JSON"
    assert ask(broker, "/v1/clock/accept", "[]")[1]["error"] == "BAD_JSON"
    assert clock_of(broker)["state"] == "leapt"


def test_no_page_in_a_browser_accepts_a_leap(broker):
    broker.clock.leap("30d")
    body = json.dumps({"to_ms": NEW_YEAR_MS + 30 * DAY_MS})
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ):
        status, told = ask(broker, "/v1/clock/accept", body, headers)
        assert (status, told["error"]) == (403, "FORBIDDEN")
    assert clock_of(broker)["state"] == "leapt"


# --- back, and behind ----------------------------------------------------------------------------


@pytest.mark.slow
def test_steps_of_a_manual_clock_are_time_that_passes(broker, connection):
    topic = new_topic(connection)
    produce(connection, topic, NEW_YEAR_MS)
    broker.clock.set(NEW_YEAR_MS + 8 * DAY_MS)
    assert clock_of(broker)["state"] == "trusted"
    assert [each["base_offset"] for each in broker.sweep()] == [0]


# --- over restarts -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_manual_clock_may_start_again_at_any_later_time(broker):
    broker.restart({"clock.start.ms": NEW_YEAR_MS + 10 * YEAR_MS})
    told = clock_of(broker)
    assert (told["state"], told["deletion_time_ms"]) == ("trusted", told["now_ms"])
    broker.restart({"clock.start.ms": NEW_YEAR_MS})
    assert clock_of(broker)["state"] == "trusted"
    assert len(broker.lines("clock stepped back")) == 1


@pytest.mark.slow
def test_a_manual_clock_that_was_set_back_has_not_been_behind_when_it_starts_again(broker):
    broker.clock.freeze(NEW_YEAR_MS - 3 * YEAR_MS)
    broker.restart({"clock.start.ms": NEW_YEAR_MS})
    assert clock_of(broker)["steps"] == []


@pytest.mark.slow
def test_a_leap_outlives_a_broker_that_is_killed(start):
    broker = start({"clock.start.pause.ms": DAY_MS})
    now_ms = int(time.time() * 1000)
    was_at(broker, now_ms - 10 * DAY_MS)
    broker.restart()
    for _ in range(2):
        told = clock_of(broker)
        assert told["state"] == "leapt"
        assert abs(told["ahead_ms"] - 10 * DAY_MS) < MINUTE_MS
        broker.kill()
        broker.restart()
    broker.restart({"clock.start.pause.ms": 30 * DAY_MS})
    assert clock_of(broker)["state"] == "leapt", "the pause is over with the first reading"


def was_at(broker, wall_ms):
    """Stops the broker, and leaves what it would have left at another time, in another boot."""
    broker.stop()
    state = ClockState(Reading(wall_ms, 5_000, "another"), Course(wall_ms, 5_000))
    for name in broker.log_dir.glob("*clock-checkpoint"):
        name.unlink()
    write_clock(broker.log_dir, StoredClock(1, state, ClockHistory("h")), durable=True)


@pytest.mark.slow
def test_how_long_a_machine_may_have_been_off(start):
    broker = start()
    for off_ms, state in (
        (20 * DAY_MS, "trusted"),
        (40 * DAY_MS, "leapt"),
        (-40 * DAY_MS, "trusted"),
    ):
        now_ms = int(time.time() * 1000)
        was_at(broker, now_ms - off_ms)
        broker.restart()
        told = clock_of(broker)
        assert told["state"] == state
        expected_ms = now_ms - off_ms if state == "leapt" else now_ms
        assert abs(told["deletion_time_ms"] - expected_ms) < MINUTE_MS
    assert len(broker.lines("clock leapt forward")) == 1
    assert len(broker.lines("clock stepped back")) == 1


@pytest.mark.slow
def test_a_damaged_file_is_logged_and_begun_anew(start):
    broker = start()
    for number, damage in enumerate(
        (
            lambda _data: b"",
            lambda data: data.replace(b"1", b"2"),
            lambda data: data[:-9],
        ),
        1,
    ):
        was_at(broker, int(time.time() * 1000) - YEAR_MS)
        path = broker.log_dir / "clock-checkpoint"
        path.write_bytes(damage(path.read_bytes()))
        broker.restart()
        assert clock_of(broker)["state"] == "trusted"
        logged = broker.lines("clock checkpoint file unreadable", "clock-checkpoint")
        assert len(logged) == number


@pytest.mark.slow
def test_a_disk_that_takes_no_file_about_the_clock_is_logged(broker):
    broker.faults.add(storage="rename", error="ENOSPC", times=1)
    broker.clock.leap("10d")
    assert clock_of(broker)["state"] == "leapt"
    assert len(broker.lines("clock checkpoint not written")) == 1
    broker.clock.leap("-10d")
    assert clock_of(broker)["state"] == "trusted"
    stored, _ = read_clock(broker.log_dir)
    assert stored.state.leap is None
