"""Addresses, and the protocols behind listener names."""

from __future__ import annotations

import pytest

from tidelog.config import ConfigError, load


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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"listeners": "SSL://:9092"}, "listener SSL asks for SSL, and only PLAINTEXT is served"),
        (
            {"listeners": "X://:9092", "listener.security.protocol.map": "X:SASL_SSL"},
            "listener X asks for SASL_SSL",
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
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address a client can connect to"),
        ({"advertised.listeners": "OTHER://h:1"}, "names OTHER, which is not among the listeners"),
        (
            {"controller.listener.names": "PLAINTEXT"},
            "every one of the listeners is named in controller.listener.names",
        ),
        ({"http.listener": "8080"}, "expected host:port"),
    ],
)
def test_refusals(settings, sentence):
    with pytest.raises(ConfigError) as caught:
        load(None, {}, settings)
    assert sentence in str(caught.value)


def test_http_is_host_and_port():
    assert load(None, {}, {"http.listener": "127.0.0.1:0"}).http.address == ("127.0.0.1", 0)
    assert load(None, {}, {"http.listener": "[::1]:80"}).http.address == ("::1", 80)
