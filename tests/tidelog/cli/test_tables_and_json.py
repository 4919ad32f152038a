"""The commands that ask a running broker: tables, JSON, exit status, and what they would rather not do."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy
from tests.oracle import recordset
from tests.oracle.recordset import Rec

ROOT = Path(__file__).parents[3]
NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS = 3_600_000


@pytest.fixture
def topic(broker, connection):
    """Two partitions; in the first a record every hour, of which the second lies before 1970."""
    name = asking.new_name()
    asking.create(connection, name, partitions=2, retention_ms="-1", segment_bytes="150")
    for time in (1000, -86_400_000, 3000, 2000):
        produce(connection, name, time)
        broker.clock.step("1h")
    return name


def produce(connection, topic, *times, **more):
    records = recordset.batch([Rec(time, b"v") for time in times])
    assert asking.produce(connection, topic, records, **more)["error_code"] == 0


def rows(table):
    """The cells of a table, row by row, without its head."""
    lines = iter(table.splitlines())
    for line in lines:
        if line.startswith("─"):
            break
    return [re.split(r" {2,}", line.strip()) for line in lines if line.strip()]


def start_of(connection, topic, partition=0):
    return asking.list_offset(connection, topic, -2, partition=partition)["offset"]


# --- offsets and times ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [
        (["--at", "1001"], "2"),
        (["--at", "1970-01-01T00:00:03.001Z"], "none"),
        (["--at", "-0044-03-15T12:00Z"], "0"),
        (["--at=-2"], "0"),
        (["--at", "1969-12-31T23:59:59.999Z", "--shift"], "0"),
        (["--appended-at", "-2h30m"], "2"),
        (["--appended-at", "2026-01-01T03:00Z"], "3"),
        (["--appended-at", "now"], "none"),
        (["--appended-at", "-2h", "--committed", "--partition", "0"], "2"),
    ],
)
def test_offsets_of_a_time(run, topic, arguments, offset):
    status, out, err = run("offsets", topic, *arguments)
    assert (status, err) == (0, "")
    assert rows(out)[0][:2] == ["0", offset]
    status, out, _ = run("offsets", topic, *arguments, "--json")
    assert json.loads(out)["partitions"][0]["offset"] == (-1 if offset == "none" else int(offset))


def test_offsets_without_a_time_are_the_ends(run, topic):
    status, out, _ = run("offsets", topic, "--partition", "0")
    assert status == 0
    assert rows(out) == [
        ["0", "first", "0", "1970-01-01T00:00:01Z", "2026-01-01T00:00:00Z"],
        ["last", "3", "1970-01-01T00:00:02Z", "2026-01-01T03:00:00Z"],
        ["largest", "2", "1970-01-01T00:00:03Z", "2026-01-01T02:00:00Z"],
        ["end", "4"],
    ]


def test_times_of_an_offset(run, topic):
    status, out, _ = run("times", topic, "0", "1")
    assert status == 0
    assert rows(out) == [
        ["record time", "1969-12-31T00:00:00Z", "-86400000"],
        ["append time", "2026-01-01T01:00:00Z", str(NEW_YEAR_MS + HOUR_MS)],
    ]
    status, out, _ = run("times", topic, "0", "1", "--json")
    assert json.loads(out)["timestamp_ms"] == -86_400_000


def test_what_has_no_time_and_what_nobody_knows_is_said(run, broker, connection):
    topic = asking.new_name()
    asking.create(connection, topic)
    produce(connection, topic, -1)
    assert "none: the record has no time" in run("times", topic, "0", "0")[1]
    broker.kill()
    (
        broker.log_dir / f"{topic}-0" / "partition.times"
    ).unlink()  # as if somebody else had written it
    broker.restart()
    assert "unknown" in run("times", topic, "0", "0")[1]
    status, out, _ = run("offsets", topic, "--appended-at", "-1h")
    assert status == 0
    assert rows(out)[0][:4] == ["0", "0 to 1?", "-", "-"]
    assert "are unknown" in out
    status, out, _ = run("explain", topic)
    assert rows(out)[0][3] == "unknown?"
    assert "some append times are unknown" in out


def test_an_offset_that_compaction_removed_is_not_the_answer(run, broker, connection):
    topic = asking.new_name()
    asking.create(connection, topic, cleanup_policy="compact", segment_bytes="220")
    for keys in (b"ab", b"cd", b"c", b"e", b"e"):
        batch = recordset.batch([Rec(NEW_YEAR_MS, b"v" * 30, bytes([key])) for key in keys])
        assert asking.produce(connection, topic, batch)["error_code"] == 0
        broker.clock.step("1h")
    broker.compact(topic)
    assert "compaction has removed the record" in run("times", topic, "0", "2")[1]
    status, out, _ = run("offsets", topic, "--appended-at", "-4h")
    assert (status, rows(out)[0][:2]) == (0, ["0", "3"])
    assert f"{topic}-0: compaction has removed offset 2; 3 is the next record" in out
    row = json.loads(run("offsets", topic, "--appended-at", "-4h", "--json")[1])["partitions"][0]
    assert (row["offset"], row["absent"]) == (3, {"start_offset": 2, "end_offset": 3})
    status, out, _ = run("offsets", topic, "--appended-at", "-5h")
    assert "compaction" not in out


# --- explain -------------------------------------------------------------------------------------


def test_explain_tells_every_segment_and_what_a_setting_would_delete(run, topic):
    status, out, err = run(
        "explain", topic, "--partition", "0", "--set", "retention.ms=1d", "--why"
    )
    assert (status, err) == (0, "")
    assert "retention.ms=86400000" in out.splitlines()[0]
    assert "4 records from 0 on" in out
    assert "maxEventTime 1970-01-01T00:00:03Z" in out
    table = rows(out)
    assert table[0] == [
        "0 to 1",
        "138 B",
        "1970-01-01T00:00:01Z",
        "2026-01-01T00:00:00Z",
        "now, by retention.ms",
    ]
    assert table[1] == ["2026-01-01T01:00:00Z"]  # the last append; first and largest event are one
    assert table[2][0] == "2 to 3 active"
    assert (
        "With retention.ms=86400000: the next round of retention deletes 2 segments, 4 rec" in out
    )
    assert "As it is: the next round of retention deletes nothing." in out
    assert "0: retention.ms=86400000 deletes it with the next round." in out


def test_explain_tells_when_a_segment_goes(run, broker, connection):
    topic = asking.new_name()
    asking.create(connection, topic, retention_ms=str(HOUR_MS), segment_bytes="100")
    produce(connection, topic, NEW_YEAR_MS + HOUR_MS)
    broker.clock.step("30m")
    produce(connection, topic, NEW_YEAR_MS - HOUR_MS)
    status, out, _ = run("explain", topic, "--why")
    assert status == 0
    assert "0: retention.ms=3600000 deletes it at 2026-01-01T01:00:00.001Z." in out
    deletions = [row[-1] for row in rows(out) if len(row) == 5]
    assert deletions[0] == "2026-01-01T01:00:00.001Z, by retention.ms"
    assert deletions[1] == "2026-01-01T01:00:00.001Z, by retention.ms, behind 0"
    older = "1: Segments go oldest first, and the one at 0 goes at 2026-01-01T01:00:00.001Z. "
    assert older + "retention.ms=3600000 would delete it with the next round." in out
    assert "The next round of retention deletes nothing." in out


def test_an_empty_topic_is_explained(run, connection):
    topic = asking.new_name()
    asking.create(connection, topic)
    status, out, _ = run("explain", topic)
    assert status == 0
    assert "0 records from 0 on, 0 B; maxEventTime none, last append none" in out
    assert rows(out)[0][-1] == "stays: active and empty"


# --- delete-records ------------------------------------------------------------------------------


def test_a_record_from_the_future_keeps_what_lies_behind_it_and_is_named(run, broker, connection):
    topic = asking.new_name()
    asking.create(connection, topic, retention_ms="-1")
    far_ms = NEW_YEAR_MS + 25 * 146_097 * 24 * HOUR_MS
    for time in (1000, far_ms, 2000, 3000, 4000):
        produce(connection, topic, time)
        broker.clock.step("1h")
    status, out, _ = run("delete-records", topic, "--before", "2026-01-01T04:00Z", "--dry-run")
    assert (status, rows(out)[0][:3]) == (0, ["0", "0 to 0", "1"])
    assert "offset 1 has the time +12026-01-01T00:00:00Z, and was appended at 2026-01-01T01" in out
    assert "from there on 4 records stay; --largest-before deletes them too" in out
    told = run("delete-records", topic, "--before", "2026-01-01T04:00Z", "--dry-run", "--json")[1]
    assert "--largest-before" in json.loads(told)["partitions"][0]["kept"]
    further = ("--before", "2026-01-01T02:30Z", "--largest-before")
    status, out, _ = run("delete-records", topic, *further, "--dry-run")
    assert rows(out)[0][:3] == ["0", "0 to 4", "5"], "no record was both from then and written then"
    produce(connection, topic, NEW_YEAR_MS + 5 * HOUR_MS)
    status, out, _ = run("delete-records", topic, *further, "--yes")
    assert (status, start_of(connection, topic)) == (0, 5)
    assert "Deleted: 5 records" in out
    status, out, _ = run("delete-records", topic, "--before", "2026-01-01T04:00Z", "--dry-run")
    assert "--largest-before" not in out
    assert run("delete-records", topic, "--before", "now", "--appended", "--largest-before")[0] == 2


def test_delete_records_says_first_what_goes_and_then_deletes_it(run, connection, topic):
    plan = ["0", "0 to 1", "2", "138 B"]
    status, out, _ = run("delete-records", topic, "--before", "1001", "--dry-run")
    assert (status, rows(out)[0]) == (0, plan)
    assert start_of(connection, topic) == 0
    status, out, err = run("delete-records", topic, "--before", "1001")
    assert (status, rows(out)[0]) == (2, plan)
    assert "2 records, 138 B of" in err
    assert "--yes" in err
    assert start_of(connection, topic) == 0
    status, out, _ = run("delete-records", topic, "--before", "1001", "--yes")
    assert (status, rows(out)[0]) == (0, plan)
    assert out.endswith("Deleted: 2 records, 138 B.\n")
    assert start_of(connection, topic) == 2
    status, out, _ = run("delete-records", topic, "--before", "1001", "--yes")
    assert status == 0
    assert "Nothing to delete." in out


def test_delete_records_by_append_time_and_all_that_is_older(run, connection, topic):
    told = run("delete-records", topic, "--before", "-2h", "--appended", "--yes", "--json")
    assert told[0] == 0
    first, second = json.loads(told[1])["partitions"]
    assert (first["records"], first["log_start_offset"], first["kept"]) == (2, 2, None)
    assert second["records"] == 0
    assert start_of(connection, topic) == 2
    assert run("delete-records", topic, "--before", "2020-01-01T00:00Z", "--yes")[0] == 0
    assert start_of(connection, topic) == 4  # nothing has a later time


@pytest.mark.parametrize(("answer", "start"), [("y", 2), ("YES", 2), ("", 0), ("n", 0)])
def test_delete_records_asks_at_a_terminal(run, connection, topic, answer, start):
    status, _, err = run("delete-records", topic, "--before", "1001", answer=f"{answer}\n")
    assert "Delete 2 records, 138 B of" in err
    assert start_of(connection, topic) == start
    assert status == (0 if start else 1)


@pytest.mark.slow
def test_delete_records_keeps_what_it_cannot_judge(run, broker, connection):
    topic = asking.new_name()
    asking.create(connection, topic, **{"message.format.version": "0.9.0"})
    produce(connection, topic, 5)
    status, out, _ = run("delete-records", topic, "--before", "now", "--yes")
    assert status == 0
    assert "no record has a time: use --appended" in out
    assert start_of(connection, topic) == 0
    broker.kill()
    (broker.log_dir / f"{topic}-0" / "partition.times").unlink()
    broker.restart()
    status, out, _ = run("delete-records", topic, "--before", "now", "--appended", "--yes")
    assert status == 0
    assert "the append times of 0 to 0 are unknown: they stay" in out
    with broker.connect() as again:
        assert start_of(again, topic) == 0


def test_delete_records_leaves_the_topic_of_another_broker_alone(
    run, broker, topic, tmp_path, connection
):
    with healthy(tmp_path) as other, other.connect() as there:
        asking.create(there, topic, partitions=2)
        produce(there, topic, 1, 2, 3, 4)
        status, _, err = run(
            "delete-records", topic, "--before", "1001", "--yes", kafka=other.bootstrap
        )
        assert status == 1
        assert "not the one that --http looked at" in err
        assert start_of(there, topic) == 0
    assert start_of(connection, topic) == 0


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [("x", 2, "HOST:PORT"), ("127.0.0.1:1", 1, "no broker answers at 127.0.0.1:1")],
)
def test_delete_records_wants_a_broker(run, topic, address, status, words):
    given = ("--before", "now", "--yes", "--broker", address)
    got, _, err = run("delete-records", topic, *given)
    assert (got, err.count("\n")) == (status, 1)
    assert words in err


def test_delete_records_tells_what_the_broker_refuses(run, broker, connection):
    topic = asking.new_name()
    asking.create(connection, topic, **{"cleanup.policy": "compact"})
    records = recordset.batch([Rec(5, b"v", b"k")])
    assert asking.produce(connection, topic, records)["error_code"] == 0
    status, _, err = run("delete-records", topic, "--before", "now", "--yes")
    assert status == 1
    assert "PolicyViolation" in err


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["configs", "show", "t"],
        ["groups", "list"],
        ["consume", "t"],
        ["produce", "t"],
        ["delete-records", "t", "--before", "now", "--yes"],
    ],
)
def test_no_command_needs_kafka_python(monkeypatch, run, topic, command):
    monkeypatch.setitem(sys.modules, "kafka", None)
    command = [topic if each == "t" else each for each in command]
    status, out, err = run(*command, stdin=b"line\n")
    assert (status, err) == (0, "")
    assert out


def test_nothing_answers_or_something_else_does(run, broker):
    status, out, err = run("offsets", "t", http="127.0.0.1:1")
    assert (status, out) == (1, "")
    assert err.startswith("tidelog offsets: nothing answers at http://127.0.0.1:1 (")
    assert "--http HOST:PORT" in err
    assert run("offsets", "t", http=broker.bootstrap)[0] == 1
    assert run("offsets", "t", http="nowhere")[0] == 2
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        talk = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "offsets", "t", "--http", address],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        accepted, _ = silent.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(talk)
            _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"is not the HTTP port of tidelog" in err


def test_serving_imports_nothing_of_it():
    program = """
import sys
from tidelog.cli import parser
parser.parser_of("serve").parse_args(["serve"])
import tidelog.broker.server
names = ("tidelog.cli.shared", "tidelog.control", "rich", "kafka", "aiohttp", "tidelog.broker.http.api")
print([name for name in sys.modules if name.startswith(names)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_json_needs_no_table_library(broker, topic):
    program = f"""
import sys
from tidelog.cli.parser import main
assert main(["offsets", "{topic}", "--json", "--http", "{broker.http}"]) == 0
assert not any(name.startswith(("rich", "kafka")) for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("columns", [40, 90, 200])
def test_no_terminal_is_too_narrow_to_show_everything(run, topic, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, out, _ = run("explain", topic, "--partition", "0", "--set", "retention.ms=1d")
    for words in ("0 to 1", "1970-01-01T00:00:01Z", "2026-01-01T01:00:00Z", "now, by retention.ms"):
        assert words in out
    assert len(next(line for line in out.splitlines() if line.startswith("─"))) <= max(columns, 102)
