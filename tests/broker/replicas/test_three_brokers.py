"""Three real processes: replication, a leader that is killed, and a broker that comes back."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.cluster import BrokerCluster


@pytest.fixture
def cluster(tmp_path):
    with BrokerCluster(tmp_path / "data", settings={"log.retention.ms": -1}) as made:
        yield made


def create(cluster, name, partitions=1, configs=None):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(name, partitions, replication_factor=3, config=configs or {})
    admin.create_topics([topic])[name].result(30)


def leader_of(cluster, topic):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.list_topics(topic, timeout=30).topics[topic].partitions[0]


class Load:
    """A producer with acks=all that remembers what was acknowledged."""

    def __init__(self, cluster):
        self.acknowledged = []
        self.refused = []
        self._next = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 1_000,
                "linger.ms": 1,
            }
        )

    def send(self, topic, count):
        for _ in range(count):
            value = b"%d" % self._next
            self._next += 1
            self._producer.produce(topic, value, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error, message):
        (self.acknowledged if error is None else self.refused).append(error or message.value())

    def flush(self):
        assert self._producer.flush(60) == 0


def consumed(cluster, topic, count):
    """The values of a partition, read by a consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        end = time.monotonic() + 60
        while len(values) < count and time.monotonic() < end:
            values += [
                each.value() for each in consumer.consume(500, timeout=1) if each.error() is None
            ]
        return values
    finally:
        consumer.close()


def test_nothing_acknowledged_is_lost_with_a_killed_leader_and_it_joins_again(cluster):
    create(cluster, "t", configs={"min.insync.replicas": "2"})
    load = Load(cluster)
    load.send("t", 500)
    load.flush()
    first = leader_of(cluster, "t").leader
    load.send("t", 500)
    cluster.kill(first)
    load.send("t", 500)
    load.flush()
    assert not load.refused
    assert len(load.acknowledged) == 1_500
    state = leader_of(cluster, "t")
    assert state.leader != first
    assert first not in state.isrs
    assert consumed(cluster, "t", 1_500) == [b"%d" % number for number in range(1_500)]
    cluster.restart(first)
    end = time.monotonic() + 60
    while first not in leader_of(cluster, "t").isrs:
        assert time.monotonic() < end, "the broker that came back is not in the ISR"
        time.sleep(0.1)
    load.send("t", 100)
    load.flush()
    assert len(load.acknowledged) == 1_600
    assert consumed(cluster, "t", 1_600) == [b"%d" % number for number in range(1_600)]
    assert [each.stop() for each in cluster] == [0, 0, 0]
    for each in cluster:
        assert "Traceback" not in each.log(), each.log()[-5000:]
