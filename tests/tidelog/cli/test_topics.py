"""`tidelog topics` and `tidelog configs`: what they tell, what they change, and what they ask first."""

from __future__ import annotations

import json

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.cli.parser import main
from tidelog.client.calls import topics as topic_calls

DAY_MS = 86_400_000


@pytest.fixture
def old(connection):
    """A topic whose three records of the year 1970 are kept for ever."""
    name = asking.new_name("old")
    asking.create(connection, name, partitions=2, retention_ms="-1")
    records = recordset.batch([Rec(time, b"v") for time in (1000, -DAY_MS, 3000)])
    assert asking.produce(connection, name, records)["error_code"] == 0
    return name


def settings(run, topic):
    status, out, _ = run("configs", "show", topic, "--json")
    assert status == 0
    return json.loads(out)["settings"]


def test_a_topic_is_made_listed_described_altered_and_deleted(run):
    name = asking.new_name("made")
    arguments = ("--partitions", "2", "--set", "retention.ms=7d", "--set", "segment.bytes=1000")
    assert run("topics", "create", name, *arguments) == (0, f"Created {name}.\n", "")
    listed = {each["topic"]: each for each in json.loads(run("topics", "--json")[1])}
    assert listed[name]["partitions"] == 2
    assert name in run("topics", "list")[1]
    status, out, _ = run("topics", "describe", name)
    assert status == 0
    assert listed[name]["topic_id"] in out
    assert "2 partitions" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["retention.ms", "604800000", "topic", "604800000"] in rows
    grow = ("topics", "alter", name, "--partitions")
    assert run(*grow, "3", "--dry-run") == (0, f"{name} would have 3 partitions.\n", "")
    assert run(*grow, "1", "--dry-run")[0] == 2
    assert len(json.loads(run("topics", "describe", name, "--json")[1])[0]["partitions"]) == 2
    assert run(*grow, "3", "--unset", "segment.bytes")[0] == 0
    (told,) = json.loads(run("topics", "describe", name, "--json")[1])
    assert [each["partition"] for each in told["partitions"]] == [0, 1, 2]
    assert list(told["settings"]) == ["retention.ms"]
    status, _, err = run("topics", "delete", name)
    assert status == 2
    assert "--yes" in err
    assert run("topics", "delete", name, "--yes") == (0, f"Deleted {name}.\n", "")
    assert run("topics", "describe", name)[0] == 1


def test_a_topic_is_made_with_as_many_replicas_as_are_asked_for(run, monkeypatch):
    asked = []
    create = topic_calls.create

    def noted(*arguments, **options):
        asked.append(options["replication_factor"])
        return create(*arguments, **options)

    monkeypatch.setattr(topic_calls, "create", noted)
    for number, options in enumerate(([], ["--replication-factor", "1"])):
        name = f"replicated-{number}"
        assert run("topics", "create", name, *options) == (0, f"Created {name}.\n", "")
    assert asked == [-1, 1]


def test_describe_tells_offsets_and_sizes(run, old):
    (told,) = json.loads(run("topics", "describe", old, "--json")[1])
    first, second = told["partitions"]
    assert (first["log_start_offset"], first["end_offset"]) == (0, 3)
    assert (second["log_start_offset"], second["end_offset"]) == (0, 0)
    assert first["size"] > second["size"] == 0
    assert f"{first['size']} B" in run("topics", "describe", old)[1]


def test_a_setting_is_shown_with_its_source_default_and_meaning(run, old):
    entry = settings(run, old)["retention.ms"]
    assert (entry["value"], entry["source"], entry["default"]) == ("-1", "topic", str(7 * DAY_MS))
    assert "may be deleted" in entry["doc"]
    status, out, _ = run("configs", "show", old, "--changed")
    assert status == 0
    assert "may be deleted" in out
    assert "cleanup.policy" not in out
    assert "log.retention.ms" in run("configs", "show", "--of-broker")[1]


def test_what_deletes_nothing_is_changed_at_once(run, old):
    assert run("configs", "set", old, "segment.ms=1h") == (
        0,
        f"Changed {old}: segment.ms=3600000.\n",
        "",
    )
    assert settings(run, old)["segment.ms"]["value"] == "3600000"
    assert run("configs", "set", old, "retention.ms=40000d")[0] == 0
    assert run("configs", "unset", old, "segment.ms")[0] == 0
    assert settings(run, old)["segment.ms"]["source"] == "default"


def test_what_would_delete_nothing_says_so(run, old):
    status, out, _ = run("configs", "set", old, "retention.ms=40000d", "--dry-run")
    assert (status, out) == (
        0,
        "With retention.ms=3456000000000 the next round of retention deletes nothing more.\n",
    )


@pytest.mark.parametrize("command", ["topics", "configs", "groups"])
def test_where_the_broker_is_may_be_said_before_the_action(capsys, command):
    arguments = {"topics": ["list"], "configs": ["show", "T"], "groups": ["list"]}[command]
    assert main([command, "--broker", "127.0.0.1:1", *arguments]) == 1
    assert "no broker answers at 127.0.0.1:1 " in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [("configs", "set", "T", "retention.ms=1h"), ("configs", "unset", "T", "retention.ms")],
)
def test_what_deletes_is_said_first(run, old, change):
    change = [old if each == "T" else each for each in change]
    status, out, err = run(*change)
    assert (status, out) == (2, "")
    assert "1 segment, 3 records" in err
    assert "--yes" in err
    assert err.count("\n") == 1
    status, out, _ = run(*change, "--dry-run")
    assert status == 0
    assert f"of {old} (by retention.ms)." in out
    told = json.loads(run(*change, "--dry-run", "--json")[1])
    assert told["deletes"][0]["records"] == 3
    assert told["changed"] is False
    assert settings(run, old)["retention.ms"]["value"] == "-1"
    assert run(*change, "--yes")[0] == 0
    assert settings(run, old)["retention.ms"]["value"] != "-1"


def test_topics_alter_says_first_what_it_deletes_too(run, old):
    status, _, err = run("topics", "alter", old, "--set", "retention.ms=1h", "--partitions", "3")
    assert status == 2
    assert "3 records" in err
    (told,) = json.loads(run("topics", "describe", old, "--json")[1])
    assert len(told["partitions"]) == 2


def test_a_setting_of_the_broker_is_judged_by_every_topic_without_its_own(run, broker, connection):
    name = asking.new_name("heir")
    asking.create(connection, name)
    now = broker.clock.now_ms()
    records = recordset.batch([Rec(now - DAY_MS, b"v")])
    assert asking.produce(connection, name, records)["error_code"] == 0
    change = ("configs", "set", "--of-broker", "log.retention.ms=1h")
    status, _, err = run(*change)
    assert status == 2
    assert f"1 record, 69 B of {name}" in err
    assert "of old-" not in err
    assert run(*change, "--yes")[0] == 0
    assert settings(run, name)["retention.ms"]["source"] == "broker, set live"
    assert run("configs", "unset", "--of-broker", "log.retention.ms", "--yes")[0] == 0
    assert settings(run, name)["retention.ms"]["source"] == "default"


@pytest.mark.parametrize(("answer", "value"), [("y", "3600000"), ("", "-1")])
def test_at_a_terminal_it_asks(run, old, answer, value):
    status, _, err = run("configs", "set", old, "retention.ms=1h", answer=f"{answer}\n")
    assert "Change it? [y/N]" in err
    assert status == (0 if answer else 1)
    assert settings(run, old)["retention.ms"]["value"] == value


def test_without_http_what_may_delete_wants_yes(run, old):
    change = ("configs", "set", old, "retention.ms=1h")
    status, _, err = run(*change, http="127.0.0.1:1")
    assert status == 2
    assert "what retention.ms=3600000 would delete is unknown" in err
    assert run("configs", "set", old, "segment.ms=1h", http="127.0.0.1:1")[0] == 0
    assert run(*change, "--yes", http="127.0.0.1:1")[0] == 0


def test_the_http_port_of_another_broker_is_not_believed(run, old, tmp_path):
    with healthy(tmp_path) as other, other.connect() as there:
        asking.create(there, old, partitions=2)
        status, _, err = run("configs", "set", old, "retention.ms=1h", http=other.http)
    assert status == 2
    assert "is unknown" in err


def test_the_brokers_own_topics_are_warned_of(run, connection):
    name, contents = "__consumer_offsets", "it contains the committed offsets of groups"
    asking.create(connection, name, partitions=2)
    status, out, err = run("topics", "alter", name, "--partitions", "3")
    assert (status, out) == (0, f"Changed {name}.\n")
    assert err == f"tidelog topics alter: warning: {name} is the broker's own: {contents}.\n"
    status, out, err = run("topics", "delete", name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{name} is the broker's own: {contents}. {name} and all records there would be" in err
    assert run("topics", "delete", name, "--yes") == (0, f"Deleted {name}.\n", "")
