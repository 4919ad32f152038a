"""The launcher of Apache Kafka, as far as it can be tried without Java, Maven or a network."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from tests.oracle import apache_kafka
from tests.oracle.apache_kafka import ApacheKafkaError, free_ports


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDELOG_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def fetched(cache):
    """A cache that holds two jars of 3.9.1."""
    directory = cache / "kafka-3.9.1"
    directory.mkdir()
    for name in ("a.jar", "b.jar"):
        (directory / name).write_bytes(b"12345")
    coordinates = list(apache_kafka.COORDINATES["3.9.1"])
    stamp = {"coordinates": coordinates, "jars": {"a.jar": 5, "b.jar": 5}}
    (directory / "stamp.json").write_text(json.dumps(stamp))
    return directory


@pytest.mark.parametrize(
    "damage",
    [
        lambda directory: (directory / "b.jar").unlink(),
        lambda directory: (directory / "b.jar").write_bytes(b"123"),
        lambda directory: (directory / "stamp.json").unlink(),
        lambda directory: (directory / "stamp.json").write_text("{"),
        lambda directory: (directory / "stamp.json").write_text('{"coordinates": [], "jars": {}}'),
    ],
)
def test_a_half_finished_download_is_not(fetched, damage):
    damage(fetched)
    assert not apache_kafka.is_fetched("3.9.1")


def test_a_connection_to_itself_is_no_answer(monkeypatch):
    """Where nobody listens, the system may choose the port that is asked for as the asking one."""

    def to_itself(address, timeout):
        connection = socket.socket()
        connection.settimeout(timeout)
        connection.bind(address)
        connection.connect(connection.getsockname())
        return connection

    with to_itself(("127.0.0.1", 0), 2) as connection:
        assert connection.getsockname() == connection.getpeername()
    monkeypatch.setattr(socket, "create_connection", to_itself)
    assert not apache_kafka.answers_metadata(0)


@pytest.mark.oracle
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.9.1", "0.10.2.2"])
def test_a_broker_starts_although_somebody_has_its_port(apache_kafka, monkeypatch, version):
    with socket.socket() as listening, contextlib.ExitStack() as stack:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        taken = listening.getsockname()[1]
        offered = [[taken, *free_ports(1)], [*free_ports(1), taken]]
        monkeypatch.setattr(
            "tests.oracle.apache_kafka.free_ports",
            lambda count: offered.pop() if offered else free_ports(count),
        )
        kafka = stack.enter_context(apache_kafka(version))
        assert not offered
        assert kafka.port != taken


@pytest.mark.oracle
@pytest.mark.timeout(900)
def test_a_broker_starts_again_on_its_directory(apache_kafka, tmp_path):
    with apache_kafka("3.9.1") as kafka:
        first = kafka.pid
        kafka.stop()
        with pytest.raises(ApacheKafkaError, match="not running"):
            _ = kafka.pid
        kafka.start()
        assert kafka.pid != first
        with pytest.raises(ApacheKafkaError, match="running already"):
            kafka.start()
