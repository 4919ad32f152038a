"""Settings with two names: either name describes, replaces and removes the setting, everywhere."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from tests.broker.api.test_alter_configs import replace
from tests.broker.api.test_create_topics import ask as create_topics
from tests.broker.api.test_create_topics import topic as to_create
from tests.broker.api.test_describe_configs import ask as describe
from tests.broker.asking import BROKER, TOPIC, alter, create, new_name, new_topic, own
from tests.broker.conftest import of_module
from tidelog.cli.parser import main
from tidelog.config import BROKER_ALIASES, TOPIC_ALIASES

INVALID_CONFIG, INVALID_REQUEST = 40, 42
SET, DELETE = 0, 1
SOURCE_DYNAMIC = 2
SECOND = "max.message.time.difference.ms"
OWN = "message.timestamp.difference.max.ms"
LOG = "log.message.timestamp.difference.max.ms"


def described(connection, kind, resource, name):
    """The value that a setting is described with under one of its names."""
    (entry,) = describe(connection, kind, resource, [name])["configs"]
    assert entry["name"] == name
    return entry["value"]


@pytest.fixture
def topic(connection):
    return new_topic(connection, **{SECOND.replace(".", "_"): "5000"})


def test_every_second_name_has_one_setting():
    assert TOPIC_ALIASES == {SECOND: OWN}
    assert BROKER_ALIASES == {
        SECOND: LOG,
        "message.timestamp.type": "log.message.timestamp.type",
        "message.format.version": "log.message.format.version",
        "broker.id": "node.id",
    }


class TestOfTopics:
    @pytest.mark.parametrize("name", [OWN, SECOND])
    def test_alter_configs_replaces_it_by_either_name(self, connection, topic, name):
        assert replace(connection, TOPIC, topic, [(name, "7000")]) == (0, None)
        assert own(connection, topic) == {OWN: "7000"}
        assert replace(connection, TOPIC, topic, []) == (0, None)
        assert own(connection, topic) == {}

    def test_names_that_contradict_each_other_are_refused(self, connection, topic):
        both = [(OWN, "1"), (SECOND, "2")]
        sentences = [
            replace(connection, TOPIC, topic, both),
            alter(connection, TOPIC, topic, *((name, SET, value) for name, value in both)),
            alter(connection, TOPIC, topic, (OWN, DELETE, None), (SECOND, SET, "2")),
        ]
        (refused,) = create_topics(connection, 7, to_create(new_name(), **dict(both)))
        sentences.append((refused["error_code"], refused["error_message"]))
        for code, sentence in sentences:
            assert code == INVALID_CONFIG
            assert OWN in sentence
            assert SECOND in sentence
        assert own(connection, topic) == {OWN: "5000"}

    def test_what_an_older_version_stored(self, start):
        broker = start({})
        with broker.connect() as connection:
            create(connection, "t")
            create(connection, "both")
        broker.stop()
        rewrite(
            broker,
            {
                "topic/t": {SECOND: "5000"},
                "topic/both": {SECOND: "5", OWN: "5"},
                "config/broker": {SECOND: "9000", "message.timestamp.type": "LogAppendTime"},
            },
        )
        broker.restart()
        with broker.connect() as connection:
            assert own(connection, "t") == {OWN: "5000"}
            assert own(connection, "both") == {OWN: "5"}
            dynamic = own(connection, "1", BROKER, SOURCE_DYNAMIC)
            assert dynamic == {LOG: "9000", "log.message.timestamp.type": "LogAppendTime"}
            for name in (OWN, SECOND):
                assert alter(connection, TOPIC, "t", (name, SET, "6000")) == (0, None)
                assert own(connection, "t") == {OWN: "6000"}
            assert alter(connection, TOPIC, "t", (SECOND, DELETE, None)) == (0, None)
            assert described(connection, TOPIC, "t", OWN) == "9000"
            assert alter(connection, BROKER, "1", (LOG, DELETE, None)) == (0, None)
            assert described(connection, TOPIC, "t", OWN) == str(2**63 - 1)


def rewrite(broker, settings):
    """Stores settings as older versions of the broker stored them."""
    with closing(sqlite3.connect(broker.log_dir / "tidelog.sqlite")) as db, db:
        for key, configs in settings.items():
            ((written,),) = db.execute("SELECT value FROM kv WHERE key = ?", (key,))
            said = json.loads(written)
            said = said | {"configs": configs} if key.startswith("topic/") else configs
            db.execute("UPDATE kv SET value = ? WHERE key = ?", (json.dumps(said).encode(), key))


mine = of_module({SECOND: "100"})  # a broker whose own settings nobody else changes


class TestOfBrokers:
    @pytest.mark.parametrize(
        ("second", "name", "value"),
        [
            (SECOND, LOG, "7000"),
            ("message.timestamp.type", "log.message.timestamp.type", "LogAppendTime"),
            ("message.format.version", "log.message.format.version", "0.10.2"),
        ],
    )
    def test_either_name_sets_describes_and_removes_it(self, mine, second, name, value):
        with mine.connect() as connection:
            default = described(connection, BROKER, "1", name)
            for written, removed in ((second, name), (name, second)):
                assert alter(connection, BROKER, "1", (written, SET, value)) == (0, None)
                assert own(connection, "1", BROKER, SOURCE_DYNAMIC) == {name: value}
                for asked in (name, second):
                    (entry,) = describe(connection, BROKER, "1", [asked])["configs"]
                    assert (entry["name"], entry["value"]) == (asked, value)
                    told = {each["name"] for each in entry["synonyms"]}
                    assert told == {name, second}
                assert alter(connection, BROKER, "1", (removed, DELETE, None)) == (0, None)
                assert described(connection, BROKER, "1", second) == default
            assert replace(connection, BROKER, "1", [(second, value)]) == (0, None)
            assert own(connection, "1", BROKER, SOURCE_DYNAMIC) == {name: value}
            assert replace(connection, BROKER, "1", []) == (0, None)
            assert own(connection, "1", BROKER, SOURCE_DYNAMIC) == {}

    def test_what_is_refused_changes_nothing(self, mine):
        with mine.connect() as connection:
            for name in ("node.id", "broker.id"):
                assert alter(connection, BROKER, "1", (name, SET, "3"))[0] == INVALID_REQUEST
                assert described(connection, BROKER, "1", name) == "1"
            code, sentence = alter(connection, BROKER, "1", (LOG, SET, "1"), (SECOND, SET, "2"))
            assert code == INVALID_CONFIG
            assert LOG in sentence
            assert own(connection, "1", BROKER, SOURCE_DYNAMIC) == {}


class TestOfCommands:
    @pytest.fixture
    def run(self, mine, capsys):
        def run(*arguments):
            capsys.readouterr()
            where = ["--http", mine.http]
            if arguments[0] != "explain":
                where += ["--broker", mine.bootstrap]
            status = main([*arguments, *where])
            return status, *capsys.readouterr()

        return run

    def shown(self, run, *names):
        status, out, err = run("configs", "show", *names, "--json")
        assert status == 0, err
        return {name: entry["value"] for name, entry in json.loads(out)["settings"].items()}

    def test_configs_and_topics(self, run):
        assert run("topics", "create", "t", "--set", f"{SECOND}=5s")[0] == 0
        for name in (OWN, SECOND):
            assert self.shown(run, "t", name) == {name: "5000"}
        assert run("configs", "set", "t", f"{SECOND}=6s")[0] == 0
        assert self.shown(run, "t", OWN) == {OWN: "6000"}
        assert run("topics", "alter", "t", "--unset", SECOND)[0] == 0
        assert self.shown(run, "t", OWN) == {OWN: "100"}
        assert run("configs", "set", "t", f"{OWN}=6s")[0] == 0
        assert run("configs", "unset", "t", SECOND)[0] == 0
        assert run("configs", "unset", "t", SECOND)[0] == 1  # it is gone
        status, _, err = run("configs", "set", "t", f"{SECOND}=1", f"{OWN}=2")
        assert status == 2
        assert "two names of one setting" in err

    def test_explain_with_a_setting_under_its_second_name(self, run):
        assert run("topics", "create", "u", "--set", f"{OWN}=5s")[0] == 0
        status, out, err = run("explain", "u", "--set", f"{SECOND}=7s", "--json")
        assert status == 0, err
        assert json.loads(out)["preview"] == {OWN: "7000"}
