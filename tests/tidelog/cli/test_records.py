"""`tidelog produce` and `tidelog consume`: what goes in comes out, with its times, keys and headers."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
from time import time_ns

import pytest

from tests.broker import asking
from tests.broker.coordinators.transactions.requests import NONE, Transactional
from tests.broker.subject import eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec

NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
FAR_MS = NEW_YEAR_MS + 25 * 146_097 * 24 * 3_600_000  # ten thousand years later
FIRST_MS, LAST_MS = -(2**63), 2**63 - 1


@pytest.fixture
def topic(connection):
    name = asking.new_name()
    asking.create(connection, name, partitions=2, retention_ms="-1")
    return name


def consumed(run, topic, *arguments):
    status, out, err = run("consume", topic, "--json", *arguments)
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def stored(connection, topic, partition=0):
    """The records of a partition, as another client reads them: time, key, value, headers."""
    got = asking.fetch(connection, topic, partition=partition)
    batches, _ = recordset.parse(got["records"] or b"")
    return [
        (record["timestamp"], record["key"], record["value"], record["headers"])
        for batch in batches
        for record in batch["records"]
    ]


# --- produce -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "line", "time_ms"),
    [
        (["--time", "now"], b"v", NEW_YEAR_MS),
        (["--time", "-2h"], b"v", NEW_YEAR_MS - 2 * HOUR_MS),
        (["--json"], b'{"timestamp": "now", "value": "v"}', NEW_YEAR_MS),
    ],
)
def test_now_is_the_brokers_for_a_topic_that_is_created_too(
    run, connection, options, line, time_ms
):
    new = asking.new_name()
    assert run("produce", new, *options, stdin=line + b"\n")[0] == 0
    assert [each[0] for each in stored(connection, new)] == [time_ms]


def test_a_record_without_a_time_gets_this_machines(run, connection, topic):
    before_ms = time_ns() // 1_000_000
    assert run("produce", topic, "--partition", "0", stdin=b"v\n")[0] == 0
    ((time_ms, *_),) = stored(connection, topic)
    assert before_ms <= time_ms <= time_ns() // 1_000_000


def test_a_mistake_in_a_time_creates_no_topic(run):
    new = asking.new_name()
    status, _, err = run("produce", new, "--time", "+1.2.3h", stdin=b"v\n")
    assert status == 2
    assert err.startswith("tidelog produce: --time: ")
    assert new not in run("topics", "list")[1]


def test_a_topic_that_is_created_is_named_and_none_is_for_empty_input(run):
    new = asking.new_name("produced")
    assert run("produce", new) == (0, f"Produced 0 records to {new}.\n", "")
    assert new not in run("topics", "list")[1]
    status, out, err = run("produce", new, stdin=b"v\n")
    assert (status, out) == (0, f"Produced 1 record to {new}.\n")
    assert err.startswith(f"tidelog produce: created topic {new} with 1 partition")
    assert run("produce", new, stdin=b"v\n")[2] == ""
    near = run("produce", f"{new}x", stdin=b"v\n")[2]
    assert f"; did you mean {new}?" in near


def test_lines_become_records(run, connection, topic):
    options = ("--key-separator", ":", "--header", "a=b", "--partition", "1", "--time", "-2h")
    assert run("produce", topic, *options, stdin=b"k:v:w\nx\n\n\xff") == (
        0,
        f"Produced 4 records to {topic}.\n",
        "",
    )
    time = NEW_YEAR_MS - 2 * HOUR_MS  # by the broker's clock
    assert [each[:3] for each in stored(connection, topic, 1)] == [
        (time, b"k", b"v:w"),
        (time, None, b"x"),
        (time, None, b""),
        (time, None, b"\xff"),
    ]
    assert {str(each[3]) for each in stored(connection, topic, 1)} == {"[(b'a', b'b')]"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1969-07-20T20:17Z", -14_182_980_000),
        ("-2", -2),
        (str(FIRST_MS), FIRST_MS),
        (str(LAST_MS), LAST_MS),
        ("-0044-03-15T12:00Z", -63_549_316_800_000),
        ("+12026-01-01T00:00Z", FAR_MS),
        ("+292278994-08-17T07:12:55.807Z", LAST_MS),
        ("-292275055-05-16T16:47:04.192Z", FIRST_MS),
        ("now", NEW_YEAR_MS),
    ],
)
def test_any_time_there_is(run, connection, topic, text, expected):
    assert run("produce", topic, f"--time={text}", "--partition", "0", stdin=b"v\n")[0] == 0
    assert stored(connection, topic)[0][0] == expected


def test_every_command_reads_and_writes_every_year(run, connection):
    topic, far, past = asking.new_name(), "+12026-01-01T00:00:00.000Z", "-0044-03-15T12:00:00.000Z"
    asking.create(connection, topic, retention_ms="-1")
    for time in (past, far):
        assert run("produce", topic, "--time", time, stdin=b"v\n")[0] == 0
    assert run("groups", "reset-offsets", topic, topic, "--to-time", past, "--yes")[0] == 0
    for offset, at in enumerate((past, far)):
        read = ("consume", topic, "--from", at, "--within")
        for command, wanted in (
            (("offsets", topic, "--at", at), at),
            (("offsets", topic, "--at", at, "--json"), at),
            (("offsets", topic), at),
            (("offsets", topic, "--json"), at),
            (("times", topic, "0", f"{offset}"), at),
            (("times", topic, "0", f"{offset}", "--json"), at),
            (("explain", topic), far),
            (("explain", topic, "--json"), far),
            (("delete-records", topic, "--before", at, "--dry-run"), at),
            ((*read, "--format", "%I "), at),
            ((*read, "--json"), at),
            (("groups", "describe", topic, "--json"), past),
        ):
            status, out, err = run(*command)
            assert (status, err) == (0, ""), command
            assert wanted in out or wanted.replace(".000Z", "Z") in out, (command, out)


def test_the_time_that_is_none_is_refused_or_shifted(run, connection, topic):
    line = b'{"value": "v", "timestamp": "1969-12-31T23:59:59.999Z"}\n'
    status, _, err = run("produce", topic, "--json", stdin=b'{"value": "1"}\n' + line)
    assert status == 2
    assert "line 2" in err
    assert 'which means "no time"' in err
    assert "written before it: 1 record" in err
    assert run("produce", topic, "--time", "-1", stdin=b"v\n")[0] == 2
    options = ("--json", "--shift", "--partition", "1")
    assert run("produce", topic, *options, stdin=line)[0] == 0
    assert stored(connection, topic, 1)[-1][0] == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(run, connection, topic, compression):
    options = ("--compression", compression, "--acks", "1", "--partition", "0")
    lines = b"".join(b"value %d\n" % n for n in range(500))
    assert run("produce", topic, *options, stdin=lines)[0] == 0
    values = [each["value"] for each in consumed(run, topic, "--no-append-times")]
    assert values == [f"value {n}" for n in range(500)]
    got = asking.fetch(connection, topic)
    batches, _ = recordset.parse(got["records"])
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    used = {codecs[batch["attributes"] & 7] for batch in batches}
    assert used == {compression}


def test_a_file_is_read_and_empty_may_be_null(run, connection, topic, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b":v\nk:\n:\n")
    options = ("--key-separator", ":", "--empty-is-null", "--file", str(path), "--partition", "0")
    assert run("produce", topic, *options)[0] == 0
    found = [each[1:3] for each in stored(connection, topic)]
    assert found == [(None, b"v"), (b"k", None), (None, None)]


def test_what_the_broker_refuses_is_counted(run, connection):
    topic = asking.new_name()
    asking.create(connection, topic, **{"message.timestamp.difference.max.ms": "1000"})
    lines = b'{"value": "good", "timestamp": "now"}\n{"value": "old", "timestamp": "-1d"}\n'
    status, out, err = run("produce", topic, "--json", "--acks", "1", stdin=lines)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "of 2 records were not written" in err
    assert "is outside the window" in err


def test_what_is_too_large_is_counted_with_what_shared_its_batch(run, connection):
    topic = asking.new_name()
    asking.create(connection, topic, **{"max.message.bytes": "200"})
    status, _, err = run("produce", topic, stdin=b"x" * 1000 + b"\ny\n")
    assert status == 1
    assert "max.message.bytes=200" in err
    lost = int(re.search(r"(\d) of 2 records", err)[1])
    assert len(stored(connection, topic)) == 2 - lost < 2


def test_an_old_format_says_what_to_do(run, connection):
    topic = asking.new_name()
    asking.create(connection, topic, **{"message.format.version": "0.9.0"})
    status, _, err = run("produce", topic, stdin=b"x\n")
    assert status == 1
    assert "(here: --acks 1)" in err
    assert run("produce", topic, "--acks", "1", stdin=b"x\n")[0] == 0
    assert consumed(run, topic)[0]["timestamp_ms"] is None


# --- the round trip ------------------------------------------------------------------------------

ODD = [
    Rec(5, b"v", b"k", [("h", b"x"), ("h", None), ("bytes", b"\xff"), ("ü", b"")]),
    Rec(-86_400_000, None, b"k"),
    Rec(-2, b"\xff\x00", b"\xfe"),
    Rec(-1, b"no time"),
    Rec(7, None, None),
    Rec(FIRST_MS, "mañana\n".encode(), b""),
]


def test_consume_into_produce_copies_a_topic(run, connection, topic):
    for partition, record in enumerate(ODD * 2):
        data = recordset.batch([record])
        answer = asking.produce(connection, topic, data, partition=partition % 2)
        assert answer["error_code"] == 0
    data = recordset.batch([Rec(LAST_MS, b"last")])
    assert asking.produce(connection, topic, data)["error_code"] == 0
    copy = asking.new_name("copy")
    asking.create(connection, copy, partitions=2, retention_ms="-1")
    status, out, _ = run("consume", topic, "--json")
    assert status == 0
    assert run("produce", copy, "--json", stdin=out.encode())[0] == 0
    for partition in (0, 1):
        before = stored(connection, topic, partition)
        assert len(before) == 7 - partition
        assert stored(connection, copy, partition) == before


def test_partitions_are_kept_or_passed_over(run, connection, topic):
    line = b'{"value": "v", "partition": 7}\n'
    status, _, err = run("produce", topic, "--json", stdin=line)
    assert status == 2
    assert "there is no partition" in err
    assert run("produce", topic, "--json", "--partition", "any", stdin=line)[0] == 0
    assert run("produce", topic, "--json", "--partition", "1", stdin=line)[0] == 0
    assert b"v" in [each[2] for each in stored(connection, topic, 1)]


# --- consume -------------------------------------------------------------------------------------


@pytest.fixture
def hours(broker, connection, topic):
    """A record every hour in partition 0: 1000, a day before 1970, 3000, 2000, none, and -2."""
    for time in (1000, -86_400_000, 3000, 2000, -1, -2):
        data = recordset.batch([Rec(time, b"%d" % time, b"k")])
        assert asking.produce(connection, topic, data)["error_code"] == 0
        broker.clock.step("1h")
    return topic


def test_both_times_of_every_record(run, hours):
    found = consumed(run, hours)
    assert [each["timestamp_ms"] for each in found] == [1000, -86_400_000, 3000, 2000, None, -2]
    assert [each["append_time_ms"] for each in found] == [
        NEW_YEAR_MS + hour * HOUR_MS for hour in range(6)
    ]
    assert found[1]["timestamp"] == "1969-12-31T00:00:00.000Z"
    assert found[2]["append_time"] == "2026-01-01T02:00:00.000Z"
    status, out, _ = run("consume", hours)
    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["partition", "offset", "record", "time", "append", "time", "key", "value"]
    assert rows[2] == ["0", "1", "1969-12-31T00:00:00Z", "2026-01-01T01:00:00Z", "k", "-86400000"]
    assert rows[5][2] == "none"


def test_append_times_come_without_http(run, hours):
    """They come with the records: HTTP was asked once for each record."""
    nowhere = {"http": "127.0.0.1:1"}
    status, out, _ = run("consume", hours, "--json", **nowhere)
    assert [json.loads(line) for line in out.splitlines()] == consumed(run, hours)
    assert run("consume", hours, **nowhere) == run("consume", hours)
    status, out, err = run("consume", hours, "--format", r"%A\n", **nowhere)
    assert (status, err) == (0, "")
    assert [*map(int, out.split())] == [NEW_YEAR_MS + hour * HOUR_MS for hour in range(6)]
    assert "append_time" not in consumed(run, hours, "--no-append-times")[0]
    assert "append time" not in run("consume", hours, "--no-append-times")[1]


def test_an_append_time_that_nobody_knows_is_unknown(run, broker, connection, topic):
    data = recordset.batch([Rec(1000, b"v")])
    assert asking.produce(connection, topic, data)["error_code"] == 0
    broker.kill()
    times = broker.log_dir / f"{topic}-0" / "partition.times"
    times.unlink()  # as if somebody else had written the log
    broker.restart()
    (found,) = consumed(run, topic)
    assert (found["append_time_ms"], found["append_time"]) == (None, None)
    assert "unknown" in run("consume", topic)[1]


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--from", "2"], [2, 3, 4, 5]),
        (["--from", "2", "--to", "4"], [2, 3]),
        (["--from", "latest"], []),
        (["--to", "earliest"], []),
        (["--from", "1", "--max", "2"], [1, 2]),
        (["--from", "@1001"], [2, 3, 4, 5]),
        (["--from", "@-86400000"], [0, 1, 2, 3, 4, 5]),
        (["--from", "@-2"], [0, 1, 2, 3, 4, 5]),
        (["--from", "@1001", "--to", "@2000"], []),
        (["--to", "@3000"], [0, 1]),
        (["--from", "1970-01-01T00:00:02Z", "--to", "1970-01-01T00:00:04Z"], [2, 3, 4, 5]),
        (["--from", "@-2", "--to", "@2500", "--within"], [0, 3, 5]),
        (["--from", "@-86400000", "--to", "@0", "--within"], [1, 5]),
        (["--from=-2h"], []),
        (["--partition", "1"], []),
    ],
)
def test_from_and_to(run, hours, arguments, offsets):
    found = consumed(run, hours, *arguments)
    assert [each["offset"] for each in found] == offsets


def test_without_http_kafka_is_asked_for_times(run, hours):
    def offsets(place):
        out = run("consume", hours, f"--from={place}", "--format", r"%o\n", http="127.0.0.1:1")[1]
        return [int(line) for line in out.split()]

    assert offsets("@1001") == [2, 3, 4, 5]
    assert offsets("@-86400000") == [0, 1, 2, 3, 4, 5]
    status, _, err = run("consume", hours, "--from=@-2", http="127.0.0.1:1")
    assert status == 1
    assert "the time -2 ms cannot be looked up" in err


def test_a_format_string(run, connection, topic):
    data = recordset.batch([Rec(-2, b"v\xff", b"k", [("h", b"x"), ("n", None)])])
    assert asking.produce(connection, topic, data)["error_code"] == 0
    text = r"%t %p %o %T %I %a %A %k %K %s %S %h %%\x41\t\n"
    status, out, _ = run("consume", topic, "--format", text)
    assert status == 0
    assert out.encode(errors="surrogateescape") == (
        f"{topic} 0 0 -2 1969-12-31T23:59:59.998Z 2026-01-01T00:00:00Z {NEW_YEAR_MS} k 1 ".encode()
        + b"v\xff 2 h=x,n=NULL %A\t\n"
    )


def test_a_line_is_written_when_it_comes(broker, connection, topic):
    """A slow input does not wait; a line may come in parts, and the last one may have no end."""
    command = [sys.executable, "-m", "tidelog", "produce", topic, "--partition", "0"]
    where = ["--broker", broker.bootstrap, "--http", broker.http]
    with subprocess.Popen([*command, *where], stdin=subprocess.PIPE, bufsize=0) as process:
        process.stdin.write(b"first\nsec")
        eventually(lambda: len(stored(connection, topic)) == 1, 60)
        process.stdin.write(b"ond" + b"x" * 300_000 + b"\nlast")
        process.stdin.close()
        assert process.wait(60) == 0
    values = [value for _, _, value, _ in stored(connection, topic)]
    assert values == [b"first", b"second" + b"x" * 300_000, b"last"]


def test_follow_goes_on_until_there_are_enough(run, broker, topic):
    assert run("produce", topic, stdin=b"first\n")[0] == 0

    def later():
        with broker.connect() as connection:
            data = recordset.batch([Rec(-5, b"later")])
            assert asking.produce(connection, topic, data)["error_code"] == 0

    thread = threading.Timer(0, later)
    thread.start()
    found = consumed(run, topic, "--follow", "--max", "2")
    thread.join()
    assert {each["value"] for each in found} == {"first", "later"}


def test_follow_from_past_the_end_waits_for_what_comes(run, broker, topic):
    assert run("produce", topic, "--partition", "0", stdin=b"first\n")[0] == 0
    done = threading.Event()

    def later():
        with broker.connect() as connection:
            while not done.wait(0.2):
                data = recordset.batch([Rec(-5, b"later")])
                assert asking.produce(connection, topic, data)["error_code"] == 0

    thread = threading.Thread(target=later)
    thread.start()
    try:
        found = consumed(run, topic, "--from", "99", "--follow", "--max", "1")
    finally:
        done.set()
        thread.join()
    assert [each["value"] for each in found] == ["later"]


def test_follow_ends_when_the_topic_is_deleted(run, broker, topic):
    assert run("produce", topic, stdin=b"first\n")[0] == 0
    command = [sys.executable, "-m", "tidelog", "consume", topic, "--follow", "--format", "%s\\n"]
    where = ["--broker", broker.bootstrap]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, *where], **pipes) as process:
        assert process.stdout.readline() == b"first\n"
        assert run("topics", "delete", topic, "--yes")[0] == 0
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert err.decode() == f"tidelog consume: topic {topic} has been deleted\n"


def test_committed_ends_where_a_transaction_is_open(run, connection, topic):
    producer = Transactional(connection, asking.new_name("id"))
    assert producer.init() == NONE
    assert run("produce", topic, "--partition", "0", stdin=b"first\n")[0] == 0
    assert producer.add(topic, 0) == [NONE]
    assert producer.send(topic, "open") == NONE
    assert [each["value"] for each in consumed(run, topic, "--committed")] == ["first"]
    assert [each["value"] for each in consumed(run, topic)] == ["first", "open"]


def test_at_a_terminal_a_bar_shows_how_far_it_is(broker, topic, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 3000)
    where = ["--broker", broker.bootstrap, "--http", broker.http]
    told = at_terminal("produce", topic, "--file", str(path), *where)
    assert "15.0/15.0 kB" in told
    told = at_terminal("consume", topic, "--no-append-times", *where)
    assert "3000/3000" in told


def at_terminal(*arguments):
    """What a command that succeeds shows on a terminal, its standard output elsewhere."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=its_end,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(its_end)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(terminal, 65_536):
            shown += data
    os.close(terminal)
    assert process.wait(60) == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
