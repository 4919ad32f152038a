"""Settings that promise what is not served stop the start; values that ask for nothing do not."""

from __future__ import annotations

import pytest

from tests.config.test_against_kafka import ROWS
from tidelog.config import BROKER_SETTINGS, ConfigError, load, reconfigured
from tidelog.config.ignored import shown
from tidelog.config.unserved import _UNSERVED

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("name", "value", "consequence"),
    [
        ("authorizer.class.name", "org.example.Rules", "no access rules"),
        ("super.users", "User:admin", "no access rules"),
        ("principal.builder.class", "org.example.Builder", "User:ANONYMOUS"),
        ("client.quota.callback.class", "org.example.Quotas", "on quotas"),
        ("create.topic.policy.class.name", "org.example.Policy", "topics that are created"),
        ("alter.config.policy.class.name", "org.example.Policy", "changes of settings"),
        ("connections.max.reauth.ms", "60000", "nobody logs in"),
        ("security.inter.broker.protocol", "SASL_SSL", "PLAINTEXT alone"),
        ("ssl.client.auth", "required", "has TLS"),
        ("ssl.keystore.password", SECRET, "has TLS"),
        ("ssl.keystore.key", SECRET, "has TLS"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512", "nobody logs in"),
        ("sasl.jaas.config", f'X required password="{SECRET}";', "nobody logs in"),
        ("listener.name.plaintext.ssl.client.auth", "required", "has TLS"),
        ("listener.name.inside.plain.sasl.jaas.config", SECRET, "nobody logs in"),
        ("listener.name.plaintext.max.connections", "5", "all listeners"),
    ],
)
def test_what_promises_safety_stops_the_start_and_cannot_be_changed(name, value, consequence):
    started = load(None, {}, {})
    for give in (
        lambda: load(None, {}, {name: value}),
        lambda: reconfigured(started, {name: value}),
    ):
        with pytest.raises(ConfigError) as caught:
            give()
        assert name in str(caught.value)
        assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match=consequence):
        load(None, {}, {name: value})


@pytest.mark.parametrize("part", ["KEYSTORE_FILENAME", "TRUSTSTORE_CREDENTIALS", "KEY_CREDENTIALS"])
def test_stores_that_containers_name_stop_the_start(part):
    with pytest.raises(ConfigError, match="has TLS"):
        load(None, {f"KAFKA_SSL_{part}": "file"}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", " "),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("inter.broker.listener.name", "plaintext"),
        ("allow.everyone.if.no.acl.found", "True"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("ssl.enabled.protocols", "TLSv1.3, TLSv1.2"),
        ("ssl.protocol", "TLSv1.2"),
        ("ssl.keystore.type", "PKCS12"),
        ("ssl.truststore.type", "PEM"),
        ("listener.name.plaintext.max.connections", "2147483647"),
        ("listener.name.plaintext.num.network.threads", "3"),
    ],
)
def test_a_value_that_asks_for_nothing_is_accepted(name, value):
    assert load(None, {}, {name: value})


def test_what_a_controller_promises_is_of_no_matter_here():
    """Its listener is not bound."""
    listeners = "PLAINTEXT://:9092,CONTROLLER://:9093"
    given = {"listeners": listeners, "controller.listener.names": "CONTROLLER"}
    name = "listener.name.controller.ssl.keystore.location"
    assert load(None, {}, {**given, name: "/k"}).ignored[name] == "(hidden)"


def test_the_other_brokers_need_a_listener_that_is_bound():
    with pytest.raises(ConfigError, match=r"BROKER is not among the listeners: name one of INSIDE"):
        load(
            None,
            {},
            {
                "listeners": "INSIDE://:1",
                "listener.security.protocol.map": "INSIDE:PLAINTEXT",
                "inter.broker.listener.name": "BROKER",
            },
        )


def test_kafkas_defaults_are_accepted_and_its_passwords_are_hidden():
    for row in ROWS:
        default = row.default.removeprefix("class ")
        if row.name.startswith(("ssl.", "sasl.")) or row.name in _UNSERVED:
            assert load(None, {}, {row.name: "" if default in ("null", "(a path)") else default})
        if row.type == "PASSWORD":
            assert shown(row.name, SECRET) == "(hidden)"


def test_a_setting_that_is_served_is_not_among_them():
    """Whoever makes one work takes it out of the list."""
    assert not {name for setting in BROKER_SETTINGS.values() for name in setting.names} & set(
        _UNSERVED
    )
