"""What real clients make of planted faults: they retry, find out, or store twice, as their settings say."""

import contextlib

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from tests.broker import asking
from tests.broker.conftest import of_module

CLIENTS = ("kafka-python", "librdkafka")


one = of_module({"control.listener": "127.0.0.1:0"})


@pytest.fixture
def broker(one):
    yield one
    one.faults.clear()


@pytest.fixture
def topic(broker):
    name = asking.new_name()
    with broker.connect() as connection:
        asking.create(connection, name)
    return name


@contextlib.contextmanager
def producer(client, broker, *, idempotent):
    """A function that sends one value to a topic and returns its offset, retries included."""
    if client == "kafka-python":
        found = KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            enable_idempotence=idempotent,
            acks="all",
            retries=10,
            retry_backoff_ms=10,
            reconnect_backoff_ms=10,
            request_timeout_ms=60_000,  # or a machine that stands still has it stored twice
        )
        yield lambda topic, value: found.send(topic, value, partition=0).get(60).offset
        with contextlib.suppress(KafkaTimeoutError):
            found.close(timeout=5)
        return
    found = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "retries": 10,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "log_level": 0,
        }
    )

    def send(topic, value):
        told = []
        found.produce(topic, value, partition=0, on_delivery=lambda *what: told.append(what))
        assert found.flush(60) == 0
        error, message = told[0]
        assert error is None, error
        return message.offset()

    yield send


def stored(broker, topic):
    with broker.connect() as connection:
        return asking.read_values(connection, topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_producer_retries_through_a_leader_that_is_none(broker, topic, client):
    with producer(client, broker, idempotent=False) as send:
        assert send(topic, b"a") == 0
        fault = broker.faults.add(
            api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2
        )
        assert send(topic, b"b") == 1
        assert fault.hits == 2
    assert stored(broker, topic) == [b"a", b"b"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("idempotent", "values"), [(True, [b"a", b"b", b"c"]), (False, [b"a", b"b", b"b", b"c"])]
)
def test_an_answer_that_never_comes(broker, topic, client, idempotent, values):
    """Stored and not acknowledged: once with idempotence, twice without."""
    with producer(client, broker, idempotent=idempotent) as send:
        send(topic, b"a")
        fault = broker.faults.add(
            api="Produce", topic=topic, disconnect=True, when="after", times=1
        )
        send(topic, b"b")
        assert fault.hits == 1
        send(topic, b"c")
    assert stored(broker, topic) == values


def test_a_consumer_goes_on_after_errors_and_disconnects(broker, topic):
    with producer("librdkafka", broker, idempotent=True) as send:
        for value in (b"a", b"b", b"c"):
            send(topic, value)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
        consumer_timeout_ms=60_000,
        enable_incremental_fetch_sessions=False,  # a fault strikes requests that name its topic
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    faults = [
        broker.faults.add(api="Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2),
        broker.faults.add(api="Fetch", topic=topic, disconnect=True, skip=2, times=1),
        broker.faults.add(api="ListOffsets", topic=topic, error="LEADER_NOT_AVAILABLE", times=1),
    ]
    assert [next(consumer).value for _ in range(3)] == [b"a", b"b", b"c"]
    assert [fault.hits for fault in faults] == [2, 1, 1]
    consumer.close()
