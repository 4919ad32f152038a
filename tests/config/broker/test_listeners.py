"""Addresses, and the protocols behind listener names."""

from __future__ import annotations

import pytest

from tidelog.cli import main
from tidelog.config import ConfigError, load
from tidelog.config.broker.checks import check_reach


def listeners(text, **more):
    settings = {
        "listeners": text,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return load(None, {}, settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", [("PLAINTEXT", "127.0.0.1", 9092)]),
        ("plaintext://h:0", [("PLAINTEXT", "h", 0)]),
        ("PLAINTEXT://:9092", [("PLAINTEXT", "", 9092)]),
        ("PLAINTEXT://[::1]:9092", [("PLAINTEXT", "::1", 9092)]),
    ],
)
def test_addresses(text, expected):
    assert list(listeners(text).listeners) == expected


def test_named_listeners_need_the_map():
    text = "IN://127.0.0.1:1, OUT://127.0.0.1:2"
    found = listeners(text, listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT").listeners
    assert [listener.name for listener in found] == ["IN", "OUT"]
    with pytest.raises(ConfigError, match="listener IN has no protocol: add IN:PLAINTEXT"):
        listeners(text)


def test_other_machines_are_let_in_where_somebody_asks_for_it(tmp_path):
    asked = "PLAINTEXT://:9092"
    file = tmp_path / "server.properties"
    file.write_text(f"listeners={asked}\n", encoding="utf-8")
    assert [str(at) for at in load(None, {}, {}).listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    for given in (
        (file, {}, {}),
        (None, {"KAFKA_LISTENERS": asked}, {}),
        (None, {}, {"listeners": asked}),
    ):
        assert [str(at) for at in load(*given).listeners] == [asked]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.5", "[::1]"])
def test_loopback_may_be_advertised_without_asking(host):
    check_reach(load(None, {}, {"advertised.listeners": f"PLAINTEXT://{host}:9092"}))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"advertised.listeners": "PLAINTEXT://kafka.example:9092"},
            "advertised.listeners sends clients to kafka.example",
        ),
        (
            {"metadata.store": "etcd://etcd-1:2379"},
            "the brokers of metadata.store=etcd://... may be on other machines",
        ),
    ],
)
def test_who_wants_to_be_reached_says_where_to_listen(
    settings, reason, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tidelog.broker.server.run", lambda _: pytest.fail("it serves"))
    given = [f"--set={name}={value}" for name, value in settings.items()]
    assert main(["serve", "--log-dirs", str(tmp_path), *given]) == 2
    assert capsys.readouterr().err == (
        f"tidelog serve: listeners is not set, so the broker would listen on 127.0.0.1 alone, but {reason}: "
        "set listeners=PLAINTEXT://:9092 to listen on every interface\n"
    )
    check_reach(load(None, {}, {**settings, "listeners": "PLAINTEXT://127.0.0.1:9092"}))


def test_ports_of_different_addresses_may_be_the_same():
    listeners("PLAINTEXT://127.0.0.1:9", http_listener="127.0.0.2:9", control_listener="[::1]:9")
    listeners("PLAINTEXT://:0", http_listener=":0", control_listener=":0")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"listeners": "SSL://:9092"},
            "listener SSL has TLS, and the broker has no key: set ssl.keystore",
        ),
        (
            {
                "listeners": "IN://:1,OUT://:2",
                "listener.security.protocol.map": "IN:SSL,OUT:SSL",
                "listener.name.in.ssl.keystore.location": "in.pem",
            },
            "listener OUT has TLS, and the broker has no key",
        ),
        (
            {
                "listeners": "SSL://:1,PLAINTEXT://:2",
                "ssl.keystore.location": "own.pem",
                "metadata.store": "sqlite:shared.db",
            },
            "listener SSL has TLS, and brokers reach each other by PLAINTEXT alone",
        ),
        (
            {
                "listeners": "SSL://:1",
                "ssl.keystore.location": "own.pem",
                "ssl.client.auth": "required",
            },
            "ssl.client.auth (from command line) asks for what is not served: TLS does not do this here",
        ),
        (
            {
                "listeners": "SSL://:1,PLAINTEXT://:2",
                "ssl.keystore.location": "own.pem",
                "listener.name.plaintext.ssl.keystore.location": "own.pem",
            },
            "no listener here has TLS",
        ),
        (
            {"listeners": "X://:9092", "listener.security.protocol.map": "X:SASL_SSL"},
            "listener X asks for SASL_SSL, and only PLAINTEXT and SSL are served",
        ),
        ({"listener.security.protocol.map": "X:TLS"}, "'X:TLS' is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "X:SSL,X:PLAINTEXT"}, "X is given two protocols"),
        ({"listeners": ""}, "at least one listener is needed"),
        ({"listeners": "localhost:9092"}, "'localhost:9092' is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "port 70000 is above 65535"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "IPv6 goes in brackets"),
        ({"listeners": "PLAINTEXT://a b:9092"}, "is not a host name"),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
            "the listener name PLAINTEXT is used twice",
        ),
        (
            {
                "listeners": "A://:1,B://:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "every interface, port 1, is used twice",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "not an address a client can connect to",
        ),
        ({"advertised.listeners": "OTHER://h:1"}, "names OTHER, which is not among the listeners"),
        (
            {"controller.listener.names": "PLAINTEXT"},
            "every one of the listeners is named in controller.listener.names",
        ),
        ({"http.listener": "8080"}, "expected host:port"),
        (
            {"listeners": "PLAINTEXT://:9092", "http.listener": "127.0.0.1:9092"},
            "http.listener and listener PLAINTEXT would both have port 9092",
        ),
        (
            {"http.listener": "127.0.0.1:1", "control.listener": "127.0.0.1:1"},
            "control.listener and http.listener would both have port 1",
        ),
    ],
)
def test_refusals(settings, sentence):
    with pytest.raises(ConfigError) as caught:
        load(None, {}, settings)
    assert sentence in str(caught.value)


def test_http_is_host_and_port():
    assert load(None, {}, {"http.listener": "127.0.0.1:0"}).http.address == ("127.0.0.1", 0)
    assert load(None, {}, {"http.listener": "[::1]:80"}).http.address == ("::1", 80)
