"""What DescribeConfigs is told: values, sources and synonyms (KIP-226)."""

from __future__ import annotations

from tidelog.config import ConfigSource, broker_entries, load, topic_config, topic_entries
from tidelog.config.setting import LONG_MAX


def topic(overrides, **flags):
    broker = load(None, {}, {name.replace("_", "."): value for name, value in flags.items()})
    entries = topic_entries(broker, topic_config(broker, overrides), overrides)
    return {entry.name: entry for entry in entries}


def test_a_default():
    entry = topic({})["retention.ms"]
    assert (entry.value, entry.source, entry.is_default) == (
        "604800000",
        ConfigSource.DEFAULT,
        True,
    )
    assert entry.synonyms == (("log.retention.ms", "604800000", ConfigSource.DEFAULT),)


def test_a_topics_value_over_the_brokers():
    entry = topic({"retention.ms": "5"}, log_retention_hours="1", log_retention_minutes="2")[
        "retention.ms"
    ]
    assert (entry.value, entry.source) == ("5", ConfigSource.TOPIC)
    assert entry.synonyms == (
        ("retention.ms", "5", ConfigSource.TOPIC),
        ("log.retention.minutes", "2", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.ms", "604800000", ConfigSource.DEFAULT),
    )


def test_an_alias_is_shown_under_the_settings_name():
    entries = topic({"max.message.time.difference.ms": "5"})
    assert "max.message.time.difference.ms" not in entries
    entry = entries["message.timestamp.difference.max.ms"]
    assert (entry.value, entry.source) == ("5", ConfigSource.TOPIC)


def test_a_replaced_window_no_longer_counts():
    entry = topic(
        {"message.timestamp.difference.max.ms": "5"}, log_message_timestamp_before_max_ms="1"
    )["message.timestamp.before.max.ms"]
    assert (entry.value, entry.source) == (str(LONG_MAX), ConfigSource.DEFAULT)


def test_values_are_written_as_kafka_writes_them():
    entries = topic({"cleanup.policy": "compact, delete"})
    assert entries["cleanup.policy"].value == "compact,delete"
    assert entries["preallocate"].value == "false"
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"


def test_a_broker_shows_its_own_settings_and_its_topics_defaults():
    broker = load(None, {}, {"log.segment.bytes": "100", "listeners": "PLAINTEXT://[::1]:7"})
    entries = {entry.name: entry for entry in broker_entries(broker)}
    assert entries["listeners"].value == "PLAINTEXT://[::1]:7"
    assert entries["listeners"].read_only
    assert entries["log.segment.bytes"].value == "100"
    assert entries["log.segment.bytes"].source is ConfigSource.STATIC_BROKER
    assert not entries["log.segment.bytes"].read_only
    assert "segment.bytes" not in entries
