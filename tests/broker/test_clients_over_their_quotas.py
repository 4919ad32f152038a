"""A real client (librdkafka) over its quotas: it is told so, and gets no more than Kafka would give it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.api.test_alter_client_quotas import alter, entity, setting
from tests.broker.asking import create, read_values
from tests.broker.subject import eventually

LIMIT = 100_000  # bytes a second: ten seconds' worth, 1 MB, pass at once
VALUE = bytes(range(250)) * 40  # 10 kB
SENT = 116
ID = "librdkafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    from tests.broker.conftest import healthy

    with healthy(tmp_path_factory.mktemp("quotas")) as subject, subject.connect() as connection:
        create(connection, "t")
        ops = [setting(key, float(LIMIT)) for key in ("producer_byte_rate", "consumer_byte_rate")]
        assert alter(connection, (entity(client_id=ID), *ops)) == [0]
        yield subject


def config(broker, waits, **more):
    return {
        "bootstrap.servers": broker.bootstrap,
        "client.id": ID,
        "throttle_cb": lambda event: waits.append(event.throttle_time),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.mark.slow
def test_producer_and_consumer(broker):
    waits: list[float] = []
    producer = Producer(config(broker, waits, batch_size=50_000, linger_ms=5))
    begun = time.monotonic()
    for _ in range(SENT):
        producer.produce("t", VALUE)
    assert producer.flush(60) == 0
    # What is beyond the burst comes in several requests, each of which waits for those before it.
    assert time.monotonic() - begun > 0.3
    eventually(lambda: producer.poll(0.05) is not None and max(waits, default=0) > 0.2)

    with broker.connect() as connection:
        assert len(read_values(connection, "t")) == SENT  # nothing is lost, and others are not held

    waits.clear()
    limits = {"fetch_message_max_bytes": 100_000, "fetch_wait_max_ms": 10}
    consumer = Consumer(config(broker, waits, group_id="g", enable_auto_commit=False, **limits))
    consumer.assign([TopicPartition("t", 0, 0)])
    got = 0

    def consumed():
        nonlocal got
        got += sum(each.error() is None for each in consumer.consume(50, timeout=0.05))
        return got

    eventually(lambda: consumed() >= 50 and waits)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        consumed()
    consumer.close()
    assert 50 <= got <= 112  # of 116: ten seconds' worth, and a little of the eleventh
    assert max(waits) > 0
    rate = broker.metric("kafka_server_fetch_byte_rate", client_id=ID)
    assert 0.5 * LIMIT < rate < 1.2 * LIMIT
    for side in ("produce", "fetch"):
        assert broker.metric(f"kafka_server_{side}_throttle_time_total", client_id=ID) > 0
