"""ApiVersions: the list is what is served, in every version's shape; what is malformed gets 42."""

from __future__ import annotations

import struct

import pytest

from tests.broker.asking import VERSIONS, all_versions
from tests.broker.raw import Pipe
from tests.oracle import wire

INVALID_REQUEST = 42
KEYS = {wire.SCHEMAS[api][0].API_KEY: (0, highest) for api, highest in VERSIONS.items()}


def ask(connection, version, name="raw", software_version="1.0"):
    return connection.ask(
        "ApiVersions",
        version,
        client_software_name=name,
        client_software_version=software_version,
    )


@pytest.mark.parametrize("version", all_versions("ApiVersions"))
def test_every_version_lists_every_api(connection, version):
    answer = ask(connection, version)
    assert answer["error_code"] == 0
    listed = {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]
    }
    assert listed == KEYS
    assert answer.get("throttle_time_ms", 0) == 0


@pytest.mark.parametrize("version", [3, 4])
def test_the_version_of_transactions_is_finalized(connection, version):
    """KIP-890: clients follow level 2 only if it is finalized, with an epoch."""
    answer = ask(connection, version)
    assert answer["finalized_features_epoch"] == 0
    (finalized,) = answer["finalized_features"]
    assert finalized["name"] == "transaction.version"
    assert (finalized["min_version_level"], finalized["max_version_level"]) == (2, 2)
    supported = {each["name"]: each["max_version"] for each in answer["supported_features"]}
    assert supported == ({} if version == 3 else {"transaction.version": 2})  # KIP-1022


def test_the_response_header_is_never_flexible(broker):
    """A client reads the answer before it knows what the broker speaks: no tag buffer in the header."""
    with Pipe(broker) as pipe:
        pipe.push("ApiVersions", 4, client_software_name="raw", client_software_version="1")
        answer = pipe.receive()
    assert answer[:6] == struct.pack(">ih", 0, 0), "correlation id, then the error at once"


@pytest.mark.parametrize(
    ("name", "software_version"),
    [
        ("", "1"),
        ("raw", ""),
        ("-raw", "1"),
        ("raw-", "1"),
        ("ra w", "1"),
        ("raw", ".1"),
        ("räw", "1"),
        ("raw\n", "1"),
        ("raw", "1/2"),
    ],
)
def test_a_malformed_software_name_or_version(connection, name, software_version):
    for version in (3, 4):
        answer = ask(connection, version, name, software_version)
        assert (answer["error_code"], answer["api_keys"]) == (INVALID_REQUEST, [])


@pytest.mark.parametrize("name", ["r", "apache-kafka-java", "a.b-c.9", "librdkafka"])
def test_a_proper_name_is_counted(broker, connection, name):
    labels = {"name": name, "version": "2.13.0"}
    before = broker.metric("tidelog_client_handshakes_total", **labels)
    assert ask(connection, 4, name, "2.13.0")["error_code"] == 0
    assert broker.metric("tidelog_client_handshakes_total", **labels) == before + 1
