"""The address of etcd in `metadata.store`, and the settings that go with it."""

from __future__ import annotations

import pytest

from tidelog.config import ConfigError, load
from tidelog.config.broker.etcd_address import EtcdAddress, parse_etcd


@pytest.mark.parametrize(
    ("text", "endpoints", "name"),
    [
        ("etcd://a:2379", ("a:2379",), "tidelog"),
        ("etcd://a:1, b:2,c/orders", ("a:1", "b:2", "c:2379"), "orders"),
        ("etcd://[::1]:2379,[::2]", ("[::1]:2379", "[::2]:2379"), "tidelog"),
    ],
)
def test_members_and_name(text, endpoints, name):
    assert parse_etcd(text) == EtcdAddress(endpoints, name)


@pytest.mark.parametrize(
    "text",
    [
        "etcd:",
        "etcd://",
        "etcd://a:2379,",
        "etcd://a:port",
        "etcd://a:0",
        "etcd://a:65536",
        "etcd://a:2379/",
        "etcd://a:2379/a/b",
        "etcd://a:1,a:1",
        "etcd://::1:2379",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match=r"metadata\.store=etcd:"):
        load(None, {}, {"metadata.store": text})


def test_sessions_are_longer_with_etcd_unless_somebody_has_set_them():
    name, etcd = "metadata.store", "etcd://a:2379"
    assert load(None, {}, {name: "sqlite:a"}).cluster.broker_session_timeout_ms == 3_000
    assert load(None, {}, {name: etcd}).cluster.broker_session_timeout_ms == 6_000
    chosen = load(None, {}, {name: etcd, "broker.session.timeout.ms": "3000"})
    assert chosen.cluster.broker_session_timeout_ms == 3_000


@pytest.mark.parametrize("half", ["certificate", "key"])
def test_a_certificate_needs_its_key(half):
    with pytest.raises(ConfigError, match="need each other"):
        load(None, {}, {f"metadata.store.{half}.file": "/some/file"})


@pytest.mark.parametrize("half", ["user", "password.file"])
def test_a_user_needs_a_password_file(half):
    with pytest.raises(ConfigError, match=r"user and metadata.store.password.file need each other"):
        load(None, {}, {f"metadata.store.{half}": "broker"})
