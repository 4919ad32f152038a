"""SaslHandshake and SaslAuthenticate on a PLAINTEXT listener: listed, and refused as Kafka does."""

from __future__ import annotations

import pytest

from tests.broker.asking import BODIES, all_versions

ILLEGAL_SASL_STATE = 34


@pytest.mark.parametrize("version", all_versions("SaslHandshake"))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "", "no such"])
def test_there_is_no_exchange_to_begin(connection, version, mechanism):
    answer = connection.ask("SaslHandshake", version, mechanism=mechanism)
    assert answer == {"error_code": ILLEGAL_SASL_STATE, "mechanisms": []}


@pytest.mark.parametrize("version", all_versions("SaslAuthenticate"))
def test_there_is_no_exchange_to_go_on_with(broker, connection, version):
    answer = connection.ask("SaslAuthenticate", version, auth_bytes=b"\0somebody\0s3cret")
    assert (answer["error_code"], answer["auth_bytes"]) == (ILLEGAL_SASL_STATE, b"")
    assert answer.get("session_lifetime_ms", 0) == 0
    assert "PLAINTEXT" in answer["error_message"]
    assert "s3cret" not in broker.log()


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
def test_the_connection_serves_on(connection, api):
    assert connection.ask(api, 0, **BODIES[api])["error_code"] == ILLEGAL_SASL_STATE
    mine = connection._socket
    assert connection.ask("ListGroups", 0)["error_code"] == 0
    assert connection._socket is mine
