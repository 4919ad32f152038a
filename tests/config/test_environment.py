"""KAFKA_* variables: spelling, what is not a setting, and what a misspelling looks like."""

from __future__ import annotations

import pytest

from tidelog.config import ConfigError, load
from tidelog.config.environment import setting_name


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B_C", "a_b.c"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_CFG_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_CLIENT_SSL_KEY", "listener.name.client.ssl.key"),
    ],
)
def test_underscores_stand_for_dots_underscores_and_dashes(variable, name):
    assert setting_name(variable) == name


def test_what_images_and_clusters_put_there_is_no_setting():
    environ = {
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "x",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_JMX_OPTS": "x",
        "KAFKA_LOG4J_LOGGERS": "x",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_SERVICE_PORT_CLIENT": "9092",
        "NOT_KAFKA": "x",
    }
    config = load(None, environ, {})
    assert config == load(None, {}, {})
    assert config.ignored == {}


def test_somebody_elses_variable_is_passed_over_and_named():
    config = load(None, {"KAFKA_TOPIC": "orders", "KAFKA_BOOTSTRAP_SERVERS": "h:1"}, {})
    assert config.ignored == {"KAFKA_TOPIC": "(hidden)", "KAFKA_BOOTSTRAP_SERVERS": "(hidden)"}


def test_a_misspelling_is_refused():
    with pytest.raises(ConfigError) as caught:
        load(None, {"KAFKA_LOG_RETENTON_MS": "1"}, {})
    assert str(caught.value) == (
        "there is no setting log.retenton.ms (from environment variable KAFKA_LOG_RETENTON_MS); "
        "did you mean log.retention.ms?"
    )


def test_a_bad_value_names_the_variable():
    with pytest.raises(
        ConfigError, match=r"\(from environment variable KAFKA_NODE_ID\): expected an integer"
    ):
        load(None, {"KAFKA_NODE_ID": "x"}, {})


def test_kafkas_own_quick_start_environment_is_accepted():
    config = load(
        None,
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_NUM_PARTITIONS": "3",
        },
        {},
    )
    assert config.listeners == (("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (("PLAINTEXT", "localhost", 9092),)
    assert set(config.ignored) == {
        "process.roles",
        "controller.quorum.voters",
    }
    assert config.groups.offsets_topic_replication_factor == 1


def test_the_environment_of_test_containers_is_accepted():
    config = load(
        None,
        {
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9093,BROKER://broker:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
                "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL"
            ),
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_SASL_ENABLED_MECHANISMS": "",
            "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "GSSAPI",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
        },
        {},
    )
    assert [each.name for each in config.listeners] == ["PLAINTEXT", "BROKER"]
    assert config.inter_broker_listener_name == "BROKER"
