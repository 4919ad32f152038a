"""A broker with a listener of TLS: real clients read back what they produce, and mistakes are sentences."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from tests.broker.asking import new_topic
from tests.broker.finding import Client
from tests.broker.subject import eventually
from tests.certificates import Authority
from tidelog.process import BrokerFailed

HOST = "127.0.0.1"
PASSWORD = "hunter2"
LISTENERS = {"listeners": f"PLAINTEXT://{HOST}:0,SSL://{HOST}:0"}
RECORDS = [b"%d" % number * 100 for number in range(1000)]


@pytest.fixture(scope="module")
def authority():
    return Authority("tests")


@pytest.fixture(scope="module")
def own(authority):
    return authority.issue("broker", hosts=[HOST])


@pytest.fixture(scope="module")
def trust(authority, tmp_path_factory):
    """The file of the certificate that clients trust."""
    path = tmp_path_factory.mktemp("trust") / "ca.pem"
    path.write_text(authority.pem)
    return str(path)


def address_of(broker, name="SSL"):
    """Host and port of a listener."""
    (found,) = (each for each in broker._listeners.split(",") if each.startswith(f"{name}://"))
    return found.partition("://")[2]


def plain(broker):
    """Returns a connection without TLS."""
    return Client(address_of(broker, "PLAINTEXT"), timeout_s=60)


def settings_of(kind, own, directory):
    """The settings of a key store, of each form."""
    if kind == "pem":
        path = own.write_pem(directory / "own.pem")
        return {"ssl.keystore.location": path, "ssl.keystore.type": "PEM"}
    if kind == "pem, encrypted":
        path = own.write_pem(directory / "own.pem", PASSWORD)
        return {"ssl.keystore.location": path, "ssl.key.password": PASSWORD}
    if kind == "pkcs12":
        path = own.write_pkcs12(directory / "own.jks", PASSWORD)
        return {"ssl.keystore.location": path, "ssl.keystore.password": PASSWORD}
    if kind == "of one listener":
        path = own.write_pem(directory / "own.pem")
        return {"listener.name.ssl.ssl.keystore.location": path}
    return {
        "ssl.keystore.key": own.key_pem(),
        "ssl.keystore.certificate.chain": own.certificate_pem,
    }


@pytest.fixture
def start_with(start, own, tmp_path):
    def start_one(kind="pem", **settings):
        given = {key: str(value) for key, value in settings_of(kind, own, tmp_path).items()}
        return start(LISTENERS | given | settings)

    return start_one


def librdkafka(broker, trust):
    return {
        "bootstrap.servers": address_of(broker),
        "security.protocol": "SSL",
        "ssl.ca.location": trust,
    }


def kafka_python(broker, trust):
    return {
        "bootstrap_servers": address_of(broker),
        "security_protocol": "SSL",
        "ssl_cafile": trust,
    }


def by_librdkafka(broker, trust, topic):
    """Returns what librdkafka reads back of what it has produced."""
    producer = Producer(librdkafka(broker, trust))
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer(
        librdkafka(broker, trust) | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < len(RECORDS):
        found += [each.value() for each in consumer.consume(500, 60)]
    consumer.close()
    return found


def by_kafka_python(broker, trust, topic):
    """Returns what kafka-python reads back of what it has produced."""
    producer = KafkaProducer(**kafka_python(broker, trust))
    for value in RECORDS:
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", group_id=topic, **kafka_python(broker, trust)
    )
    found = [next(consumer).value for _ in RECORDS]
    consumer.close()
    return found


@pytest.mark.parametrize("exchange", [by_librdkafka, by_kafka_python])
def test_clients_read_back_what_they_produce(start_with, trust, exchange):
    broker = start_with()
    with plain(broker) as connection:
        topic = new_topic(connection)
    assert exchange(broker, trust, topic) == RECORDS
    assert broker.metric("tidelog_tls_handshakes_failed_total") == 0


def shaken(broker, trust, **versions):
    """Returns a TLS connection to the broker. Raises ssl.SSLError."""
    context = ssl.create_default_context(cafile=trust)
    for name, value in versions.items():
        setattr(context, name, value)
    host, _, port = address_of(broker).rpartition(":")
    raw = socket.create_connection((host, int(port)), timeout=60)
    return context.wrap_socket(raw, server_hostname=HOST)


@pytest.mark.parametrize("kind", ["pem, encrypted", "pkcs12", "of one listener", "inline"])
def test_a_key_store_may_have_each_form(start_with, trust, kind):
    broker = start_with(kind)
    with shaken(broker, trust) as connection:
        assert connection.version() == "TLSv1.3"
    assert PASSWORD not in broker.log()
    assert "PRIVATE KEY" not in broker.log()


def test_only_the_versions_that_are_enabled_are_served(start_with, trust):
    broker = start_with(**{"ssl.enabled.protocols": "TLSv1.2"})
    with shaken(broker, trust) as connection:
        assert connection.version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        shaken(broker, trust, minimum_version=ssl.TLSVersion.TLSv1_3)
    eventually(lambda: broker.metric("tidelog_tls_handshakes_failed_total") == 1)


def test_a_client_without_tls_is_closed_counted_and_logged(start_with):
    broker = start_with()
    host, _, port = address_of(broker).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"\0\0\0\x0e\0\x12\0\0\0\0\0\1\0\4tests")
        with suppress(ConnectionResetError):
            while client.recv(1000):
                pass
    eventually(lambda: broker.metric("tidelog_tls_handshakes_failed_total") == 1)
    assert broker.lines("TLS handshake failed", "the client does not speak TLS")


def test_a_client_that_does_not_trust_the_broker_is_logged(start_with):
    broker = start_with()
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(broker, None)
    eventually(lambda: broker.lines("TLS handshake failed", "the client refuses"))


def test_secrets_of_stores_are_not_described(start_with):
    broker = start_with("pkcs12")
    with plain(broker) as connection:
        answer = connection.ask(
            "DescribeConfigs",
            1,
            resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}],
            include_synonyms=True,
        )
    (result,) = answer["results"]
    entries = {each["name"]: each for each in result["configs"]}
    password = entries["ssl.keystore.password"]
    assert password["is_sensitive"]
    assert password["value"] is None
    assert all(each["value"] is None for each in password["synonyms"])
    assert entries["ssl.keystore.location"]["value"].endswith("own.jks")
    assert PASSWORD not in str(answer)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ssl.keystore.location": "/nowhere/own.pem"}, "/nowhere/own.pem cannot be read"),
        ({"ssl.keystore.key": PASSWORD}, "belong together"),
        ({"ssl.key.password": PASSWORD}, "the broker has no key"),
        ({"ssl.keystore.type": "JCEKS"}, "expected one of JKS, PKCS12, PEM"),
    ],
)
def test_a_store_that_cannot_be_used_stops_the_start(start, given, sentence):
    with pytest.raises(BrokerFailed) as failed:
        start(LISTENERS | given)
    assert sentence in str(failed.value)
    assert PASSWORD not in str(failed.value)


def test_a_wrong_password_of_a_key_stops_the_start(start_with):
    with pytest.raises(BrokerFailed, match=r"ssl\.keystore\.password is wrong"):
        start_with("pkcs12", **{"ssl.keystore.password": "other"})
