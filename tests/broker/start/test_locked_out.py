"""No request of a client locks everybody out, and what an older release took does so no more."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from tests.broker.asking import BROKER, alter

INVALID_CONFIG, INVALID_REQUEST = 40, 42
SET, DELETE = 0, 1
SECRET = "hunter2"


def quota(connection, kind, key, value):
    """Sets a quota of all of a kind that have none of their own; returns the error."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": None}],
        "ops": [{"key": key, "value": value, "remove": False}],
    }
    answer = connection.ask("AlterClientQuotas", 1, entries=[entry], validate_only=False)
    return answer["entries"][0]["error_code"]


def is_served(broker):
    """Whether a new client gets an answer."""
    with broker.connect(timeout_s=10) as connection:
        return bool(connection.ask("Metadata", 12, topics=[])["brokers"])


def store(broker, configs):
    """Writes settings of all brokers, and quotas, into the metadata of a broker that does not run."""
    with closing(sqlite3.connect(broker.log_dir / "tidelog.sqlite")) as db, db:
        for key, value in configs.items():
            text = json.dumps(value).encode()
            db.execute(
                "INSERT OR REPLACE INTO kv SELECT ?, ?, create_revision, mod_revision, 0"
                " FROM kv WHERE key = 'config/broker'",
                (key, text),
            )


def test_limits_that_would_keep_everybody_out_are_refused(broker, connection):
    for resource in ["", "1"]:
        for name, value in (
            ("max.connections", "0"),
            ("max.connections", "1"),
            ("max.connections.per.ip", "1"),
            ("max.connections.per.ip.overrides", "127.0.0.1:0"),
            ("max.connection.creation.rate", "0"),
        ):
            code, sentence = alter(connection, BROKER, resource, (name, SET, value))
            assert code == INVALID_CONFIG, name
            assert "undo it" in sentence
            assert is_served(broker)


def test_limits_that_together_keep_everybody_out_are_refused(broker, connection):
    """Kafka takes these: one address may connect, and nobody has it."""
    changes = (
        ("max.connections.per.ip", SET, "0"),
        ("max.connections.per.ip.overrides", SET, "192.0.2.1:99"),
    )
    assert alter(connection, BROKER, "", *changes)[0] == INVALID_CONFIG
    assert is_served(broker)


def test_quotas_of_next_to_nothing_are_refused(broker, connection):
    for kind, key, value in (
        ("ip", "connection_creation_rate", 1e-7),
        ("user", "request_percentage", 1e-320),
        ("client-id", "producer_byte_rate", 1e-7),
        ("client-id", "controller_mutation_rate", 1e-320),
    ):
        assert quota(connection, kind, key, value) == INVALID_REQUEST
        assert is_served(broker)


DOORS = """
    http.allowed.hosts http.max.connections http.listener listeners advertised.listeners
    listener.security.protocol.map inter.broker.listener.name control.listener metadata.store
    zookeeper.connect
"""


def test_no_client_opens_or_moves_a_door(connection):
    for name in DOORS.split():
        assert alter(connection, BROKER, "", (name, SET, "x"))[0] == INVALID_REQUEST, name


def test_what_is_not_served_is_not_stored(broker, connection):
    for name in [
        "confluent.anything",
        "rsm.config.anything",
        "no.such.setting",
        "listener.name.plaintext.ssl.keystore.password",
        "listener.name.plaintext.plain.sasl.jaas.config",
    ]:
        code, sentence = alter(connection, BROKER, "", (name, SET, SECRET))
        assert code == INVALID_CONFIG
        assert name in sentence
        assert SECRET not in sentence
        assert SECRET not in broker.log()


@pytest.mark.slow
def test_what_an_earlier_release_took_locks_nobody_out(start):
    broker = start()
    broker.stop()
    bad = {"max.connections": "0", "http.allowed.hosts": "evil", "confluent.key": SECRET}
    store(
        broker,
        {
            "config/broker": {**bad, "log.retention.ms": "5000"},
            "quota/ip": {"connection_creation_rate": 1e-7},
            "quota/user": {"request_percentage": 1e-320},
        },
    )
    broker.restart()
    assert is_served(broker)
    for name in bad:
        assert len(broker.lines("level=warning", "stored broker setting invalid", f"={name}")) == 1
    assert SECRET not in broker.log()
    with broker.connect() as connection:
        asked = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
        answer = connection.ask("DescribeConfigs", 4, resources=[asked])["results"][0]
        shown = {each["name"]: each for each in answer["configs"]}
        assert shown["confluent.key"]["value"] is None
        assert shown["confluent.key"]["is_sensitive"] is True
        assert shown["log.retention.ms"]["value"] == "5000"
        assert alter(connection, BROKER, "", ("log.retention.ms", SET, "6000"))[0] == 0
        assert alter(connection, BROKER, "", *((name, DELETE, None) for name in bad))[0] == 0
    broker.restart()
    assert len(broker.lines("stored broker setting invalid")) == len(bad)
