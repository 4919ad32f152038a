"""`tidelog groups`: lag exact by both times, offsets reset as by Kafka's tool, refusals in sentences."""

from __future__ import annotations

import contextlib
import functools
import json

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.broker import asking
from tests.broker.members import RawMember, commit, settled
from tests.broker.subject import eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.cli.groups import command
from tidelog.cli.groups.lag import Lag, with_catch_up
from tidelog.client.apis import DESCRIBE_GROUPS
from tidelog.client.sync_connection import Connection

# kafka-python leaves sockets of lost connections to the garbage collector, which may run at any time.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")

NEW_YEAR_MS, HOUR_MS = 1_767_225_600_000, 3_600_000
NOWHERE = "127.0.0.1:1"
# The records of partition 0, an hour apart, from new year on.
TIMES = [NEW_YEAR_MS - 5_001, NEW_YEAR_MS + 30 * HOUR_MS, -3, -1, NEW_YEAR_MS]


@pytest.fixture
def run(run):
    return functools.partial(run, "groups")


@pytest.fixture
def topic(broker, connection):
    """Two partitions, five records in the first; the clock is ten seconds after the last."""
    name = asking.new_name()
    asking.create(connection, name, partitions=2, retention_ms="-1")
    for number, time in enumerate(TIMES):
        broker.clock.set(NEW_YEAR_MS + number * HOUR_MS)
        answer = asking.produce(connection, name, recordset.batch([Rec(time, b"v", b"k")]))
        assert answer["error_code"] == 0
    broker.clock.step("10s")
    return name


@pytest.fixture
def group():
    return asking.new_name("group")


@contextlib.contextmanager
def consuming(broker, group, topic, **more):
    """A real consumer that has its partitions."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **more,
    )
    try:
        assert consumer.partitions_for_topic(topic)  # whoever assigns has to know them
        eventually(lambda: consumer.poll(500) or consumer.assignment())
        yield consumer
    finally:
        consumer.close(autocommit=False)


def committed(broker, group, topic, *offsets):
    """A group that has read so far and left."""
    with broker.connect() as connection:
        for number, offset in enumerate(offsets):
            eventually(lambda: commit(connection, group, topic, offset, partition=number) == 0)


def described(run, group, **more):
    status, out, err = run("describe", group, "--json", **more)
    assert (status, err) == (0, "")
    (told,) = json.loads(out)
    return told


def first_of(told):
    return told["partitions"][0]


def offsets(run, group):
    return {
        each["partition"]: each["committed_offset"] for each in described(run, group)["partitions"]
    }


def plan(run, group, *arguments, **more):
    """What reset-offsets says: the new offset of each partition, and the notes."""
    status, out, err = run("reset-offsets", group, *arguments, "--json", **more)
    assert (status, err) == (0, ""), err
    told = json.loads(out)
    rows = told["partitions"]
    notes = [each["note"] for each in rows if each["note"]]
    return {each["partition"]: each["new_offset"] for each in rows}, notes, told["executed"]


# --- lag -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(6))
def test_lag_is_exact_by_both_times(broker, run, topic, group, at):
    committed(broker, group, topic, at)
    now_ms = NEW_YEAR_MS + 4 * HOUR_MS + 10_000
    lag = first_of(described(run, group))
    assert (lag["committed_offset"], lag["end_offset"], lag["lag_records"]) == (at, 5, 5 - at)
    if at == 5:
        assert (lag["lag_event_ms"], lag["lag_append_ms"], lag["first_unread"]) == (0, 0, None)
        here = first_of(described(run, group, http=NOWHERE))
        assert (here["lag_event_ms"], here["lag_append_ms"]) == (0, 0)
        return
    event_ms = None if TIMES[at] == -1 else max(now_ms - TIMES[at], 0)
    assert (lag["lag_event_ms"], lag["lag_append_ms"]) == (event_ms, (4 - at) * HOUR_MS + 10_000)
    assert lag["first_unread"]["offset"] == at
    assert lag["first_unread"]["timestamp_ms"] == (None if TIMES[at] == -1 else TIMES[at])
    why = {"event": "the first unread record has no time"} if TIMES[at] == -1 else {}
    assert lag["unknown"] == why
    for by in ("event", "append"):  # the metric and the command say the same
        metric = broker.metric("tidelog_group_lag_seconds", group=group, by=by, topic=topic)
        assert metric == (lag[f"lag_{by}_ms"] or 0) / 1000
    # Without HTTP "now" is by this machine's clock.
    here = first_of(described(run, group, http=NOWHERE))
    for name in ("committed_offset", "end_offset", "log_start_offset", "lag_records"):
        assert here[name] == lag[name]
    assert here["first_unread"] == lag["first_unread"]
    assert here["unknown"] == why
    assert here["lag_append_ms"] > lag["lag_append_ms"]


def test_how_long_a_group_will_need_is_estimated(broker, run, topic, group, monkeypatch):
    def read_on(to):
        monkeypatch.setattr(command.time, "sleep", lambda _: committed(broker, group, topic, to))

    committed(broker, group, topic, 1)
    read_on(3)
    (told,) = json.loads(run("describe", group, "--json", "--over", "2s")[1])
    assert first_of(told)["lag_records"] == 2
    assert 0 < first_of(told)["catch_up_ms"] < 60_000
    read_on(3)
    assert (
        f"{topic}-0: at this rate it does not catch up."
        in run("describe", group, "--over", "1s")[1]
    )
    read_on(4)
    assert (
        f"{topic}-0: at this rate it has caught up in " in run("describe", group, "--over", "1s")[1]
    )
    read_on(5)
    (told,) = json.loads(run("describe", group, "--json", "--over", "2s")[1])
    assert first_of(told)["catch_up_ms"] == 0
    assert "catch_up_ms" not in first_of(described(run, group))
    for span in ("-1s", "0", "2h", "soon"):
        assert run("describe", group, f"--over={span}")[0] == 2


def test_the_estimate_counts_what_is_appended_meanwhile():
    def lag(committed, end):
        return Lag(("t", 0), committed, 0, end, end - committed, None, None, None, {})

    def estimate(before, now):
        (found,) = with_catch_up([lag(*before)], [lag(*now)], 10_000)
        return found.catch_up_ms

    assert estimate((0, 1000), (200, 1100)) == 90_000  # 10 a second net, of 900
    assert estimate((0, 1000), (100, 1100)) is None
    assert estimate((0, 1000), (100, 1200)) is None
    assert estimate((0, 3), (1, 3)) == 20_000
    assert with_catch_up([], [lag(0, 5)], 10_000)[0].catch_up_ms is None


def test_a_misspelt_group_is_refused_with_the_nearest_name(broker, run, topic, group):
    committed(broker, group, topic, 1)
    misspelt = f"x{group}"
    for action in (["describe"], ["delete", "--yes"], ["delete-offsets", "--yes"]):
        places = [topic] if action[0] == "delete-offsets" else []
        status, out, err = run(action[0], misspelt, *places, *action[1:])
        assert (status, out) == (1, "")
        assert f"there is no group {misspelt}; did you mean " in err
    err = run("delete-offsets", group, f"x{topic}", "--yes")[2]
    assert f"did you mean {topic}?" in err


def test_what_retention_took_is_not_behind(connection, broker, run, topic, group):
    committed(broker, group, topic, 0)
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}]
    connection.ask("DeleteRecords", 2, topics=wanted, timeout_ms=5_000)
    for http in (None, NOWHERE):
        lag = first_of(described(run, group, http=http))
        assert (lag["log_start_offset"], lag["lag_records"]) == (2, 3)
        assert lag["first_unread"]["timestamp_ms"] == -3


def test_people_read_spans(broker, run, topic, group):
    committed(broker, group, topic, 0)
    status, out, _ = run("describe", group)
    assert status == 0
    (row,) = (line.split() for line in out.splitlines() if line.startswith(topic))
    assert row == [topic, "0", "0", "5", "5", "4h", "0m", "4h", "0m"]
    assert "lag   by record time   by append time" in out


# --- members -------------------------------------------------------------------------------------


def test_members_and_what_they_read(broker, run, topic, group):
    with consuming(broker, group, topic, client_id="reader", group_instance_id="static"):
        told = described(run, group)
        assert (told["state"], told["protocol_type"], told["protocol"]) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = told["members"]
        assert (member["client_id"], member["instance_id"]) == ("reader", "static")
        assert member["host"] == "127.0.0.1"
        assert member["assigned"] == [{"topic": topic, "partition": at} for at in (0, 1)]
        readers = {each["partition"]: each["member_id"] for each in told["partitions"]}
        assert readers == dict.fromkeys((0, 1), member["member_id"])
        assert {each["lag_records"] for each in told["partitions"]} == {None}
        assert first_of(told)["unknown"]["event"] == "nothing is committed there"
        out = run("describe", group)[1]
        assert f"{topic}:0,1" in out
        assert out.startswith(f"{group}: Stable (consumer, range), 1 member, coordinator 1\n")
        listed = {each["group"]: each for each in json.loads(run("list", "--json")[1])}
        assert listed[group] == {"group": group, "state": "Stable", "protocol_type": "consumer"}
    assert group in run()[1]


def test_members_that_are_no_consumers(broker, run, group):
    """Connect's, say: what they are assigned is their own business."""
    one, two = RawMember(broker, group), RawMember(broker, group)
    for each in (one, two):
        each.kind, each.protocols = "connect", [("sessioned", b"\0\1\xff\xff")]
    settled(one, two)
    told = described(run, group)
    assert (told["protocol_type"], len(told["members"])) == ("connect", 2)
    assert {each["assigned"] for each in told["members"]} == {None}
    status, out, _ = run("describe", group)
    assert status == 0
    assert "(not a consumer's assignment)" in out
    assert "It has committed nothing." in out
    one.close()
    two.close()


# --- resetting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected", "note"),
    [
        (["--to-earliest"], {0: 0, 1: 0}, None),
        (["--to-latest"], {0: 5, 1: 0}, None),
        (["--to-current"], {0: 2, 1: 0}, "nothing is committed: the end"),
        (["--to-offset", "3"], {0: 3, 1: 0}, "3 is past the end of the log"),
        (["--to-time", "2026-01-01T00:00Z"], {0: 1, 1: 0}, "no record is that late: the end"),
        (
            ["--to-time", "1969-12-31T23:59:59.997Z"],
            {0: 0, 1: 0},
            "no record is that late: the end",
        ),
        (["--to-time", "-2h"], {0: 1, 1: 0}, "no record is that late: the end"),
        (["--to-time", "-2h", "--by", "append"], {0: 3, 1: 0}, "no record is that late: the end"),
        (["--to-time", "-1h", "--by=append"], {0: 4, 1: 0}, "no record is that late: the end"),
        (["--to-time", "-90m", "--by", "record"], {0: 1, 1: 0}, "no record is that late: the end"),
        (["--to-time", "-90m", "--by", "event"], {0: 1, 1: 0}, "no record is that late: the end"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_where_it_goes_on(broker, run, topic, group, arguments, expected, note):
    committed(broker, group, topic, 2)
    found, notes, executed = plan(run, group, topic, *arguments)
    assert (found, notes, executed) == (expected, [note] if note else [], False)
    assert offsets(run, group) == {0: 2}, "only said"
    assert plan(run, group, topic, *arguments, "--dry-run") == (found, notes, False)
    found, _, executed = plan(run, group, topic, *arguments, "--yes")
    assert (found, executed) == (expected, True)
    assert offsets(run, group) == expected


@pytest.mark.parametrize(
    ("by", "expected", "note"),
    [
        ("2", 4, []),
        ("-1", 1, []),
        ("+1", 3, []),
        ("-9", 0, ["-7 is before the beginning of the log"]),
        ("9", 5, ["11 is past the end of the log"]),
    ],
)
def test_shifted(broker, run, topic, group, by, expected, note):
    committed(broker, group, topic, 2)
    assert plan(run, group, "--all-topics", "--shift-by", by) == ({0: expected}, note, False)
    status, _, err = run("reset-offsets", group, topic, "--shift-by", by)
    assert (status, err.count("\n")) == (1, 1)
    assert f"nothing is committed in {topic}-1 that --shift-by could start from" in err


def test_a_table_says_that_nothing_was_changed(broker, run, topic, group):
    committed(broker, group, topic, 2)
    status, out, _ = run("reset-offsets", group, f"{topic}:0", "--to-earliest")
    assert status == 0
    assert out.endswith("\nNothing was changed: add --yes.\n")
    status, out, _ = run("reset-offsets", group, f"{topic}:0", "--to-earliest", "--yes")
    assert (status, out.splitlines()[-1]) == (0, f"{group} continues there.")
    assert offsets(run, group) == {0: 0}


def test_export_and_from_file(broker, run, topic, group, tmp_path):
    """A file as this command and as Kafka's tool write it."""
    committed(broker, group, topic, 2, 0)
    status, exported, _ = run("reset-offsets", group, "--all-topics", "--to-current", "--export")
    assert (status, exported) == (0, f"{topic},0,2\n{topic},1,0\n")
    run("reset-offsets", group, topic, "--to-latest", "--yes")
    assert offsets(run, group) == {0: 5, 1: 0}
    path = tmp_path / "offsets.csv"
    path.write_text(exported)
    assert plan(run, group, "--from-file", str(path), "--yes") == ({0: 2, 1: 0}, [], True)
    assert offsets(run, group) == {0: 2, 1: 0}
    of_kafka = f'"{group}","{topic}",0,1\n"another","{topic}",1,1\n\n'
    assert plan(run, group, "--from-file", "-", stdin=of_kafka.encode())[0] == {0: 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("T,0", "line 1: expected topic,partition,offset"),
        ("T,0,1\nT,zero,1", "line 2: expected topic,partition,offset"),
        ("T,0,-1", "line 1: expected topic,partition,offset"),
        ("T,0,9223372036854775808", "line 1: expected"),
        ("T,0,1\nT,0,2", "line 2: T-0 is there twice"),
        ("", "there is nothing in it for G"),
        ("another,T,0,1", "there is nothing in it for G"),
    ],
)
def test_a_file_with_a_mistake_changes_nothing(broker, run, topic, group, text, words):
    committed(broker, group, topic, 2)
    text, words = (each.replace("T", topic).replace("G", group) for each in (text, words))
    status, out, err = run("reset-offsets", group, "--from-file", "-", "--yes", stdin=text.encode())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert offsets(run, group) == {0: 2}


@pytest.mark.slow
def test_where_append_times_are_not_known_nothing_is_left_out(broker, run, topic, group):
    """As if another broker had written that log: the group continues before what is in doubt."""
    committed(broker, group, topic, 4)
    broker.stop()
    (directory,) = broker.log_dir.glob(f"{topic}-0")
    for file in (*directory.glob("*.appendtimes"), directory / "partition.times"):
        file.unlink()
    broker.restart()
    broker.clock.freeze("2026-01-01T05:00Z")
    wanted = (f"{topic}:0", "--to-time", "-2h", "--by", "append")
    found, notes, _ = plan(run, group, *wanted)
    assert found == {0: 0}
    assert notes == ["the append times of 0 to 4 are unknown: the group continues before them"]
    lag = first_of(described(run, group))
    assert (lag["lag_event_ms"], lag["lag_append_ms"]) == (5 * HOUR_MS, None)
    assert lag["unknown"] == {"append": "the append time of the first unread record is unknown"}


@pytest.mark.parametrize("error", [14, 15])
def test_a_coordinator_that_still_reads_its_groups_is_waited_for(
    broker, run, topic, group, monkeypatch, error
):
    """As after a restart: the broker is ready before all groups are."""
    committed(broker, group, topic, 2)
    ask, described_with = Connection.ask, []

    def ask_early(self, message, key, **options):
        answer = ask(self, message, key, **options)
        if key == DESCRIBE_GROUPS:
            described_with.append(error if len(described_with) < 2 else 0)
            answer.groups[0].error_code = described_with[-1]
        return answer

    monkeypatch.setattr(Connection, "ask", ask_early)
    assert first_of(described(run, group))["committed_offset"] == 2
    assert described_with == [error, error, 0]
    described_with.clear()
    assert plan(run, group, topic, "--to-earliest")[0] == {0: 0, 1: 0}
    assert described_with == [error, error, 0]


def test_nobody_is_reset_while_somebody_reads(broker, run, topic, group):
    with consuming(broker, group, topic) as consumer:
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
        for more in ([], ["--yes"]):
            status, out, err = run("reset-offsets", group, topic, "--to-latest", *more)
            assert (status, out) == (1, "")
            assert err == (
                "tidelog groups reset-offsets: offsets can only be reset while nobody is in a group, and "
                f"{group} is Stable: stop its members first\n"
            )
        assert run("delete", group, "--yes") == (
            1,
            "",
            f"tidelog groups delete: {group}: it has members: stop them first\n",
        )
        status, _, err = run("delete-offsets", group, topic, "--yes")
        assert status == 1
        assert f"{group}, {topic}-0: its members read this topic: stop them first" in err
        assert first_of(described(run, group))["committed_offset"] == 1


# --- deleting ------------------------------------------------------------------------------------


def test_groups_are_deleted_and_what_they_committed(broker, run, topic, group):
    other = asking.new_name("group")
    for each in (group, other):
        committed(broker, each, topic, 1, 0)
    status, _, err = run("delete-offsets", group, f"{topic}:0")
    assert (status, err.count("\n")) == (2, 1)
    assert "--yes" in err
    assert run("delete-offsets", group, f"{topic}:0", "--yes")[0] == 0
    assert offsets(run, group) == {1: 0}
    told = json.loads(run("delete-offsets", other, topic, "--yes", "--json")[1])
    assert [each["forgotten"] for each in told["partitions"]] == [1, 0]
    committed(broker, other, topic, 1)
    status, _, err = run("delete", group, other)
    assert status == 2
    assert f"{group}, {other} and all offsets committed there would be gone for good" in err
    with consuming(broker, other, topic):
        status, out, err = run("delete", group, other, "--yes")
        assert (status, out) == (1, f"Deleted {group}.\n")
        assert err == f"tidelog groups delete: {other}: it has members: stop them first\n"
    assert run("delete", other, "--yes", "--json")[:2] == (
        0,
        json.dumps([{"group": other, "deleted": True}]) + "\n",
    )
    assert run("describe", other)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["describe", "nobody"], 1, "there is no group nobody"),
        (["describe", ""], 2, "a group has a name"),
        (["delete", "nobody", "--yes"], 1, "there is no group nobody"),
        (["delete"], 2, "GROUP"),
        (["delete-offsets", "nobody", "T", "--yes"], 1, "there is no group nobody"),
        (["delete-offsets", "G", "T:1", "--yes"], 1, "{group} has committed nothing in {topic}-1"),
        (["delete-offsets", "G", "T:x", "--yes"], 2, "expected TOPIC or TOPIC:0,1"),
        (["reset-offsets", "G", "T"], 2, "one of the arguments --to-earliest"),
        (["reset-offsets", "G", "T", "--to-earliest", "--to-latest"], 2, "not allowed with"),
        (["reset-offsets", "G", "T", "--to-earliest", "--execute", "--dry-run"], 2, "not allowed"),
        (["reset-offsets", "G", "--to-earliest"], 2, "name TOPIC or TOPIC:0,1"),
        (["reset-offsets", "G", "T", "--all-topics", "--to-earliest"], 2, "name TOPIC or"),
        (["reset-offsets", "G", "T", "T:0", "--to-earliest"], 2, "{topic} is named twice"),
        (["reset-offsets", "G", "nowhere", "--to-earliest"], 1, "there is no topic nowhere"),
        (
            ["reset-offsets", "G", "T:2", "--to-earliest"],
            1,
            "{topic}-2: the topic has 2 partitions",
        ),
        (["reset-offsets", "G", "T", "--to-offset", "x"], 2, "expected a number"),
        (["reset-offsets", "G", "T", "--to-offset=-1"], 2, "a number from 0"),
        (["reset-offsets", "G", "T:0", "--shift-by", "9223372036854775808"], 2, "not an offset"),
        (["reset-offsets", "G", "T", "--to-time", "soon"], 2, "--to-time"),
        (["reset-offsets", "G", "T", "--to-time", "-1"], 2, 'means "no time"'),
        (["reset-offsets", "G", "T", "--to-latest", "--by", "append"], 2, "give both"),
        (["reset-offsets", "G", "T", "--to-latest", "--json", "--export"], 2, "one of them"),
        (["reset-offsets", "new", "--all-topics", "--to-latest"], 1, "has committed nothing"),
        (["reset-offsets", "G", "--from-file", "/no/such"], 2, "No such file"),
        (["nonsense"], 2, "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(broker, run, topic, group, arguments, status, words):
    committed(broker, group, topic, 2)
    short = {"G": group, "T": topic}
    arguments = [":".join(short.get(part, part) for part in each.split(":")) for each in arguments]
    got, out, err = run(*arguments)
    assert (got, out, err.count("\n")) == (status, "", 1), err
    assert words.format(group=group, topic=topic) in err
    assert offsets(run, group) == {0: 2}


def test_append_times_want_http(broker, run, topic, group):
    committed(broker, group, topic, 2)
    for time in (["-2h", "--by", "append"], ["-3"]):
        wanted = ("reset-offsets", group, topic, "--to-time", *time)
        status, _, err = run(*wanted, http=NOWHERE)
        assert (status, err.count("\n")) == (1, 1)
        assert "no HTTP port of this broker answers" in err
    assert plan(run, group, topic, "--to-time", "-2h", http=NOWHERE)[0] == {0: 5, 1: 0}
