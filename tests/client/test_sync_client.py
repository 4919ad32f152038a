"""The client against a running broker of ours and against Apache Kafka: the same answers."""

from __future__ import annotations

import pickle
import socket
import threading

import pytest

from tests.broker.subject import eventually
from tidelog.client import (
    EARLIEST,
    LATEST,
    Client,
    ClusterUnreachable,
    GroupOffset,
    RequestError,
    UnsupportedByBroker,
    address_of,
    retry,
    secured,
    sync_client,
    sync_connection,
)
from tidelog.client.apis import DESCRIBE_PRODUCERS
from tidelog.client.calls import topics
from tidelog.client.calls.records import fetch_records
from tidelog.client.errors import ConnectionBroken, NoListener
from tidelog.client.sync_connection import Connection
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import Record, build, records

TIMES = (-62135596800000, -86_400_000, -1, 0, 1_700_000_000_000)
HEADERS = ((b"h", b"x"), (b"null", None))


@pytest.fixture
def client(either):
    with Client(either, timeout_s=60) as made:
        yield made


def batch(times=TIMES):
    return build([Record(n, time, b"k%d" % n, None, HEADERS) for n, time in enumerate(times)])


def test_what_is_produced_is_fetched(client, topic):
    client.create_topic(topic, 2, {"retention.ms": "-1"})
    assert client.partition_count(topic) == 2
    first = client.produce(topic, 1, batch())
    second = client.produce(topic, 1, batch())
    assert (first.base_offset, second.base_offset, first.append_time_ms) == (0, 5, -1)
    fetched = client.fetch(topic, 1, 0)
    assert [(one.offset, one.timestamp, one.headers) for one in records(fetched.records)] == [
        (n, TIMES[n % 5], HEADERS) for n in range(10)
    ]
    assert (fetched.high_watermark, fetched.log_start_offset, fetched.aborted) == (10, 0, ())
    assert len(client.fetch(topic, 0, 0, max_wait_ms=1).records) == 0


def test_a_call_that_is_begun_is_answered_later(client, topic):
    client.create_topic(topic, 1, {"retention.ms": "-1"})
    client.produce(topic, 0, batch())
    end = client.begin(fetch_records(topic, 0, 0))
    assert [one.offset for one in records(end().records)] == [0, 1, 2, 3, 4]
    end = client.begin(fetch_records(topic, 0, 99))
    with pytest.raises(RequestError) as caught:
        end()
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.end_offset(topic, 0) == 5


def test_a_call_that_is_begun_survives_its_broker(broker, topic):
    with Client(broker.bootstrap, timeout_s=60) as client:
        client.create_topic(topic, 1, {"retention.ms": "-1"})
        client.produce(topic, 0, batch())
        end = client.begin(fetch_records(topic, 0, 5, max_wait_ms=30_000, min_bytes=1))
        broker.kill()
        broker.restart()
        with Client(broker.bootstrap) as other:
            other.produce(topic, 0, batch())
        assert [one.offset for one in records(end().records)] == [5, 6, 7, 8, 9]
        broker.kill()
        back = threading.Thread(target=broker.restart)
        back.start()
        try:
            end = client.begin(fetch_records(topic, 0, 5))
            assert [one.offset for one in records(end().records)] == [5, 6, 7, 8, 9]
        finally:
            back.join()


def test_a_topic_is_validated_and_not_made(client, topic):
    given = {"retention.ms": "12345", "cleanup.policy": "compact"}
    found = client.perform(topics.validate(topic, 3, given))
    assert not client.has_topic(topic)
    client.create_topic(topic, 3, given)
    assert found == {name: one.value for name, one in client.topic_settings(topic).items()}
    assert found["retention.ms"] == "12345"
    assert int(found["segment.bytes"]) > 0
    with pytest.raises(RequestError) as raised:
        client.perform(topics.validate(f"{topic}-b", 1, {"retention.ms": "soon"}))
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_offsets_by_time_and_at_the_ends(client, topic):
    client.create_topic(topic, 2, {"retention.ms": "-1"})
    client.produce(topic, 0, batch())
    assert client.list_offsets(topic, {0: LATEST, 1: LATEST})[0].offset == 5
    assert client.end_offset(topic, 1) == 0
    assert client.list_offsets(topic, {0: EARLIEST})[0].offset == 0
    assert client.list_offsets(topic, {0: 1})[0] == (4, 1_700_000_000_000)
    assert client.list_offsets(topic, {0: 2_000_000_000_000})[0] == (-1, -1)


def test_offsets_of_several_partitions_are_asked_for_at_once(client, topic, monkeypatch):
    client.create_topic(topic, 3, {"retention.ms": "-1"})
    for partition, times in ((0, 2), (2, 3)):
        for _ in range(times):
            client.produce(topic, partition, batch())
    assert client.list_offsets(topic, {}) == {}
    assert client.end_offset(topic, 0) == 10
    ask, asked = Connection.ask, []

    def counted(self, *arguments, **named):
        asked.append(arguments)
        return ask(self, *arguments, **named)

    monkeypatch.setattr(Connection, "ask", counted)
    ends = client.list_offsets(topic, {2: LATEST, 0: LATEST, 1: EARLIEST})
    assert len(asked) == 1
    assert {partition: found.offset for partition, found in ends.items()} == {0: 10, 1: 0, 2: 15}
    with pytest.raises(RequestError, match=f"{topic}-9") as caught:
        client.list_offsets(topic, {0: LATEST, 9: LATEST})
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_of_a_topic(client, topic):
    client.create_topic(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    settings = client.topic_settings(topic)
    assert settings["message.timestamp.type"] == ("LogAppendTime", True)
    assert not settings["segment.bytes"].is_own
    assert client.produce(topic, 0, batch()).append_time_ms > 1_700_000_000_000


def test_offsets_of_a_group(client, topic):
    client.create_topic(topic, 2)
    group = f"group-of-{topic}"
    assert client.offset_fetch(group) == {}
    client.offset_commit(group, {(topic, 1): GroupOffset(7, "note"), (topic, 0): GroupOffset(3)})
    found = client.offset_fetch(group)
    assert {place: (one.offset, one.metadata) for place, one in found.items()} == {
        (topic, 0): (3, ""),
        (topic, 1): (7, "note"),
    }


def test_a_producer_id_is_given(client):
    first, second = client.init_producer_id(), client.init_producer_id()
    assert first[0] != second[0]
    assert first[1] == second[1] == 0


def test_a_refusal_names_what_was_refused(client, topic):
    with pytest.raises(RequestError, match=f"{topic}: UNKNOWN_TOPIC_OR_PARTITION") as caught:
        client.partition_count(topic)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.create_topic(topic, 1, {"max.message.bytes": "100"})
    with pytest.raises(RequestError, match="TOPIC_ALREADY_EXISTS"):
        client.create_topic(topic, 1)
    with pytest.raises(RequestError, match="MESSAGE_TOO_LARGE"):
        client.produce(topic, 0, batch())
    with pytest.raises(RequestError, match="OFFSET_OUT_OF_RANGE"):
        client.fetch(topic, 0, 3)
    with pytest.raises(RequestError, match="has 1 partitions"):
        client.fetch(topic, 1, 0)


def test_why_records_are_refused_is_told(client, topic):
    client.create_topic(topic, 1, {"message.timestamp.before.max.ms": "1000", "retention.ms": "-1"})
    with pytest.raises(RequestError, match=r"INVALID_TIMESTAMP.*-62135596800000"):
        client.produce(topic, 0, batch())


def test_a_broker_that_is_not_there_is_said_to_be_unreachable():
    with socket.socket() as bound:  # bound, but nobody listens
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with (
            Client(f"127.0.0.1:{port}", timeout_s=0.2) as client,
            pytest.raises(ClusterUnreachable, match=f"127.0.0.1:{port} cannot be reached"),
        ):
            client.topics()


def test_a_cluster_that_has_answered_may_restart(broker, topic, monkeypatch, caplog):
    """What has reached it is known to all clients of these addresses, where a job has several."""
    monkeypatch.setattr(retry, "NO_LISTENER_S", 0.2)
    monkeypatch.setattr(sync_client, "NOTICE_S", 0.5)
    addresses = secured(broker.bootstrap, None)
    with Client(addresses) as client:
        client.create_topic(topic, 1)
    broker.kill()
    with Client(broker.bootstrap) as other, pytest.raises(ClusterUnreachable):
        other.topics()
    caplog.clear()
    back = threading.Thread(target=lambda: eventually(lambda: caplog.text, 60) and broker.restart())
    back.start()
    try:
        with Client(pickle.loads(pickle.dumps(addresses))) as client:
            assert client.end_offset(topic, 0) == 0
    finally:
        back.join()
    (said,) = caplog.messages
    assert said.startswith(f"{broker.bootstrap} cannot be reached: ")
    assert said.endswith("; still trying")


def test_a_peer_that_does_not_answer_is_said_to_be_silent(monkeypatch, caplog):
    monkeypatch.setattr(sync_connection, "NOTICE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionBroken, match="did not answer in time"):
            Connection("127.0.0.1", server.getsockname()[1], "test", 0.3)
    assert caplog.messages == [f"{address} has not answered for 0.1 s; waiting for up to 0.3 s"]


def test_a_host_without_an_address_is_nobody():
    with pytest.raises(NoListener, match=r"no-such-host.invalid:1 cannot be reached: "):
        Connection("no-such-host.invalid", 1, "test", 1)


def test_a_peer_that_talks_nonsense_is_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        serving = threading.Thread(target=answer)
        serving.start()
        with pytest.raises(ConnectionBroken, match="announces an answer of"):
            Connection("127.0.0.1", server.getsockname()[1], "test", 60)
        serving.join()


def test_an_api_that_is_not_served_is_named(broker, topic):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1)
        client.any().served.pop(DESCRIBE_PRODUCERS)
        with pytest.raises(UnsupportedByBroker, match="does not serve it"):
            client.last_sequence(topic, 0, 1)


@pytest.mark.parametrize("text", ["", "host", "host:", ":9092", "host:x", "host:70000"])
def test_what_is_no_broker_is_refused(text):
    with pytest.raises(ValueError, match="write host:port"):
        address_of(text)


def test_addresses():
    assert address_of(" localhost:9092 ") == ("localhost", 9092)
    assert address_of("[::1]:9092") == ("::1", 9092)
