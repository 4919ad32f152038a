"""Both shells against Apache Kafka 3.9.1: every mechanism, right and wrong, and what TLS refuses."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from tests.secured_kafka import (
    MECHANISMS,
    SESSION_MS,
    login,
    token,
    token_login,
)
from tests.token_endpoint import CLIENT, SECRET, token_endpoint
from tidelog.client import AuthenticationFailed, Client, ClusterUnreachable, frames
from tidelog.client.async_client import AsyncClient
from tidelog.client.calls import topics
from tidelog.client.errors import ConnectionBroken
from tidelog.client.frames import Frames
from tidelog.client.security import Security, access_to
from tidelog.client.sync_connection import Connection

pytestmark = pytest.mark.oracle

REFUSED = "refuses the login"


@pytest.fixture
def kafka(secured):
    return secured


def sync_brokers(address, settings, timeout_s=20.0):
    """The number of brokers that the synchronous client is told of."""
    with Client(address, timeout_s=timeout_s, security=Security.of(settings)) as client:
        return len(client.perform(topics.describe([])).brokers)


async def async_brokers(address, settings, timeout_s=20.0):
    security = Security.of(settings)
    async with AsyncClient(address, timeout_s=timeout_s, security=security) as client:
        return len((await client.perform(topics.describe([]))).brokers)


async def both(address, settings):
    """Ask by both shells: each must come to the same end."""
    results = []
    for ask in (sync_brokers, async_brokers):
        try:
            found = ask(address, settings)
            results.append(found if isinstance(found, int) else await found)
        except (AuthenticationFailed, ClusterUnreachable) as error:
            results.append(error)
    first, second = results
    assert (type(second), str(second)) == (type(first), str(first))
    if isinstance(first, Exception):
        raise first
    return first


def right(mechanism):
    return token_login(token()) if mechanism == "OAUTHBEARER" else login(mechanism)


def wrong(mechanism):
    if mechanism == "OAUTHBEARER":
        return token_login(token(lasts_s=-3600))
    return login(mechanism, password="not-it")


@pytest.mark.parametrize("listener", ["SASLTLS", "SASLPLAIN"])
@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
async def test_a_login_succeeds_with_the_right_credentials(kafka, listener, mechanism):
    settings = kafka.settings(listener) | right(mechanism)
    assert await both(kafka.address(listener), settings) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
async def test_a_login_with_wrong_credentials_fails_with_the_brokers_sentence(kafka, mechanism):
    settings = kafka.settings("SASLTLS") | wrong(mechanism)
    begun = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=REFUSED) as told:
        await both(kafka.address("SASLTLS"), settings)
    assert time.monotonic() - begun < 30  # it is not tried again
    expected = {
        "PLAIN": "Authentication failed: Invalid username or password",
        "OAUTHBEARER": "invalid_token",
    }.get(mechanism, "Authentication failed during authentication due to invalid credentials")
    assert expected in str(told.value)
    assert "not-it" not in str(told.value)


async def test_a_token_comes_from_an_endpoint_or_a_file(kafka, tmp_path):
    store = kafka.authority.issue("id", hosts=["127.0.0.1"]).write_pem(tmp_path / "id.pem")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    url = "sasl.oauthbearer.token.endpoint.url"
    base = kafka.settings("SASLTLS") | {"sasl.mechanism": "OAUTHBEARER"}
    with token_endpoint(store) as endpoint:
        endpoint.token = lambda _: token()
        settings = base | {
            url: f"https://127.0.0.1:{endpoint.server_port}/token",
            "sasl.jaas.config": f'{module} required clientId="{CLIENT}" clientSecret="{SECRET}"'
            f' ssl.truststore.location="{kafka.directory}/trust.pem" extension_tenant="a";',
        }
        assert await both(kafka.address("SASLTLS"), settings) == 1
        assert len(endpoint.asked) == 2  # one of each client
        endpoint.answer = 401, {"error": "invalid_client"}
        with pytest.raises(AuthenticationFailed, match="refuses the client: HTTP status 401"):
            await both(kafka.address("SASLTLS"), settings)
    file = tmp_path / "token"
    file.write_text(token())
    assert await both(kafka.address("SASLTLS"), base | {url: file.as_uri()}) == 1


@pytest.mark.parametrize(
    ("listener", "sentence"),
    [
        ("SASLTLS", None),
        ("EXPIRED", "certificate has expired"),
        ("MUTUAL", "demands a client certificate"),
        ("ELSEWHERE", "IP address mismatch"),
    ],
)
def test_the_asyncio_shell_on_uvloop(kafka, listener, sentence):
    settings = kafka.settings(listener) | (login("SCRAM-SHA-256") if sentence is None else {})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if sentence is None:
            assert runner.run(async_brokers(kafka.address(listener), settings)) == 1
        else:
            with pytest.raises(AuthenticationFailed, match=sentence):
                runner.run(async_brokers(kafka.address(listener), settings))


async def test_tls_verifies_the_broker_and_its_name(kafka):
    assert await both(kafka.address("TLS"), kafka.settings("TLS")) == 1
    other_authority = kafka.settings("TLS")
    del other_authority["ssl.truststore.location"]  # the system's authorities do not know this one
    with pytest.raises(AuthenticationFailed, match=r"local issuer.*ssl\.truststore\.location"):
        await both(kafka.address("TLS"), other_authority)
    with pytest.raises(AuthenticationFailed, match="certificate has expired"):
        await both(kafka.address("EXPIRED"), kafka.settings("EXPIRED"))
    with pytest.raises(AuthenticationFailed, match="IP address mismatch") as told:
        await both(kafka.address("ELSEWHERE"), kafka.settings("ELSEWHERE"))
    assert "ssl.endpoint.identification.algorithm" in str(told.value)


async def test_a_wrong_host_name_is_accepted_only_where_names_are_not_compared(kafka):
    settings = kafka.settings("ELSEWHERE") | {"ssl.endpoint.identification.algorithm": ""}
    assert await both(kafka.address("ELSEWHERE"), settings) == 1


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_client_certificate_is_demanded(kafka, version):
    settings = kafka.settings("MUTUAL") | {"ssl.enabled.protocols": version}
    assert await both(kafka.address("MUTUAL"), settings | kafka.identity) == 1
    with pytest.raises(AuthenticationFailed, match="demands a client certificate"):
        await both(kafka.address("MUTUAL"), settings)


async def test_every_form_of_key_store_serves(kafka, tmp_path):
    base = kafka.settings("MUTUAL")
    encrypted = kafka.client.write_pem(tmp_path / "encrypted.pem", "key-password")
    packed = kafka.client.write_pkcs12(tmp_path / "client.p12", "store-password")
    forms = [
        {"ssl.keystore.location": str(encrypted), "ssl.key.password": "key-password"},
        {"ssl.keystore.location": str(packed), "ssl.keystore.password": "store-password"},
        {
            "ssl.keystore.key": kafka.client.key_pem(),
            "ssl.keystore.certificate.chain": kafka.client.certificate_pem,
            "ssl.keystore.type": "PEM",
        },
    ]
    for form in forms:
        assert await both(kafka.address("MUTUAL"), base | form) == 1


@pytest.mark.parametrize(
    ("listener", "spoken", "sentence"),
    [
        ("TLS", {"security.protocol": "PLAINTEXT"}, r"security\.protocol"),
        (None, "TLS", r"security\.protocol"),
        ("SASLPLAIN", {"security.protocol": "PLAINTEXT"}, "may demand SASL"),
    ],
)
async def test_another_protocol_than_the_ports_is_a_sentence_soon(
    kafka, listener, spoken, sentence
):
    address = kafka.address(listener) if listener else kafka.kafka.bootstrap
    settings = kafka.settings(spoken) if spoken == "TLS" else spoken
    begun = time.monotonic()
    with pytest.raises((AuthenticationFailed, ClusterUnreachable), match=sentence):
        await both(address, settings)
    assert time.monotonic() - begun < 30


async def test_a_login_where_none_is_possible_is_refused(kafka):
    settings = {"security.protocol": "SASL_PLAINTEXT"} | login("PLAIN")
    with pytest.raises(AuthenticationFailed, match="has no SASL on this listener"):
        await both(kafka.kafka.bootstrap, settings)


@pytest.fixture
def renewed_early(monkeypatch):
    """Sessions are renewed after 2.2 of their four seconds: a busy machine may stand still meanwhile.

    Kafka refuses who does so within a second.
    """
    monkeypatch.setattr(frames, "RENEWED_AFTER", 0.55)


@pytest.mark.usefixtures("renewed_early")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_sessions_are_renewed_before_they_end(kafka, mechanism):
    settings = kafka.settings("BRIEF") | right(mechanism)
    address = kafka.address("BRIEF")
    until = time.monotonic() + 1.5 * SESSION_MS / 1000
    asked = 0
    with Client(address, security=Security.of(settings)) as client:
        connection = client.any()
        while time.monotonic() < until:
            assert client.perform(topics.describe([])).brokers
            assert client.any() is connection  # never opened again
            asked += 1
            time.sleep(0.05)
    assert asked > 10


@pytest.mark.usefixtures("renewed_early")
async def test_sessions_of_the_asyncio_shell_are_renewed_too(kafka):
    settings = kafka.settings("BRIEF") | login("SCRAM-SHA-256")
    until = time.monotonic() + 1.5 * SESSION_MS / 1000
    async with AsyncClient(kafka.address("BRIEF"), security=Security.of(settings)) as client:
        await client.topics([])
        connection = await client.connection(1)
        while time.monotonic() < until:
            assert (await client.perform(topics.describe([]))).brokers
            assert await client.connection(1) is connection
            assert not connection.is_closed


def test_a_session_that_ended_unused_is_renewed_first(kafka):
    settings = kafka.settings("BRIEF") | login("PLAIN")
    with Client(kafka.address("BRIEF"), security=Security.of(settings)) as client:
        connection = client.any()
        time.sleep(1.2 * SESSION_MS / 1000)
        assert client.perform(topics.describe([])).brokers
        assert client.any() is connection


@pytest.mark.usefixtures("renewed_early")
def test_a_session_is_renewed_while_requests_are_in_flight(kafka):
    settings = kafka.settings("BRIEF") | login("SCRAM-SHA-256")
    host, port = kafka.address("BRIEF").split(":")
    call = topics.describe([])
    until = time.monotonic() + 1.5 * SESSION_MS / 1000
    asked = 0
    access = access_to("", Security.of(settings))
    with Connection(host, int(port), "tests", 10.0, access) as connection:
        for _ in range(5):
            connection.send(call.message, call.key)
        while time.monotonic() < until:
            assert connection.receive().brokers
            connection.send(call.message, call.key)
            assert connection.in_flight == 5
            asked += 1
        for _ in range(5):
            assert connection.receive().brokers
    assert asked > 20


def test_a_client_that_does_not_renew_is_cut(kafka, monkeypatch):
    """The check of the tests above: without renewal the broker closes the connection."""
    monkeypatch.setattr(Frames, "must_renew", False)
    settings = kafka.settings("BRIEF") | login("PLAIN")
    host, port = kafka.address("BRIEF").split(":")
    access = access_to("", Security.of(settings))
    with Connection(host, int(port), "tests", 10.0, access) as connection:
        time.sleep(1.2 * SESSION_MS / 1000)
        with pytest.raises(ConnectionBroken, match="closed the connection"):
            connection.ask(topics.describe([]).message, topics.describe([]).key)
