"""Our declarations beside Apache Kafka's own, as its jars print them (kafka_settings.tsv says how).

Every setting of Kafka 3.9 and 4.4 is known here; those we declare have Kafka's type and, but for the
differences listed below with their reasons, Kafka's default.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.config import TOPIC_SETTINGS, load, topic_config
from tidelog.config.ignored import IGNORED_BROKER_NAMES, IGNORED_TOPIC_NAMES
from tidelog.config.load import BROKER_NAMES, DEFAULT_NAMES, TOPIC_NAMES

TABLE = Path(__file__).with_name("kafka_settings.tsv")

TYPES = {
    ("log.dir", "STRING"): "4.x takes a list, 3.9 one directory; a list of one is the same text",
    ("listeners", "STRING"): "4.x says LIST, 3.9 STRING, of the same text",
    ("advertised.listeners", "STRING"): "as listeners",
    ("controller.listener.names", "STRING"): "as listeners",
    ("log.dirs", "STRING"): "as listeners",
}

DEFAULTS = {
    "listeners": "loopback: other interfaces are asked for (docs/decisions/0057)",
    "message.timestamp.after.max.ms": "no limit, as 3.9; 4.x has one hour",
    "broker.id": "Kafka draws lots, or insists on node.id; one broker may be 1",
    "node.id": "as above",
    "log.dirs": "Kafka's is a directory for temporary files",
    "log.dir": "as above",
    "listener.security.protocol.map": "the same map in another order, or empty in newer ones",
    "group.initial.rebalance.delay.ms": "0, as Kafka's own quick start: a consumer begins at once",
    "broker.session.timeout.ms": "a third of Kafka's: renewing a lease is a write to a local file",
    "transaction.state.log.min.isr": "min.insync.replicas, which may be more; Kafka's is 2",
    "controller.listener.names": "null and empty mean the same",
}


class Row(NamedTuple):
    releases: str
    scope: str
    name: str
    type: str
    default: str


ROWS = [
    Row(*line.split("\t"))
    for line in TABLE.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def declared():
    """Kafka's row, our setting, and our default under that name, for what both declare."""
    for row in ROWS:
        if row.scope == "topic" and row.name in TOPIC_NAMES:
            yield row, TOPIC_NAMES[row.name]
        elif row.scope == "broker" and row.name in BROKER_NAMES:
            yield row, BROKER_NAMES[row.name]


def test_the_table_is_what_it_says():
    assert len({row.name for row in ROWS if row.scope == "broker"}) > 380
    assert len({row.name for row in ROWS if row.scope == "topic"}) > 40


def test_every_setting_of_kafka_is_known():
    brokers = {*BROKER_NAMES, *DEFAULT_NAMES, *IGNORED_BROKER_NAMES}
    topics = {*TOPIC_NAMES, *IGNORED_TOPIC_NAMES}
    assert [row.name for row in ROWS if row.scope == "broker" and row.name not in brokers] == []
    assert [row.name for row in ROWS if row.scope == "topic" and row.name not in topics] == []


def test_nothing_is_ignored_that_kafka_does_not_have():
    """But for what 4.1 had and 4.4 has no more."""
    kafka = {row.name for row in ROWS}
    assert kafka >= IGNORED_TOPIC_NAMES
    assert set(IGNORED_BROKER_NAMES).difference(kafka) == {
        "internal.metadata.max.fetch.size.in.bytes"
    }


@pytest.mark.parametrize(("row", "setting"), list(declared()), ids=lambda x: getattr(x, "name", ""))
def test_types_are_kafkas(row, setting):
    if (row.name, row.type) not in TYPES:
        assert setting.type.name == row.type


@pytest.mark.parametrize(("row", "setting"), list(declared()), ids=lambda x: getattr(x, "name", ""))
def test_defaults_are_kafkas(row, setting):
    if row.name in DEFAULTS:
        return
    assert (setting.default or "null") == (row.default or "null")


def test_broker_names_of_topic_settings_have_the_same_default_as_the_topic_setting():
    """log.retention.hours=168 and retention.ms=604800000 are one default in two units."""
    kafka = {
        row.name: row.default for row in ROWS if row.scope == "broker" and "3.9.1" in row.releases
    }
    for attribute, setting in TOPIC_SETTINGS.items():
        for name in setting.broker_names:
            text = kafka.get(name.name, "null")
            if text == "null" or name.name == "log.message.format.version":
                continue
            config = load(None, {}, {name.name: text}).topic_defaults
            expected = getattr(topic_config(load(None, {}, {}), {}), attribute)
            given = getattr(config, attribute)
            assert given == (int(text) if expected is None else expected), name.name


def test_the_differences_listed_exist():
    assert {
        row.name
        for row, setting in declared()
        if (setting.default or "null") != (row.default or "null")
    } == set(DEFAULTS)
    assert {
        (row.name, row.type) for row, setting in declared() if setting.type.name != row.type
    } == set(TYPES)
