"""Topics, a producer that remembers, and a consumer, for tests with several brokers.

A `cluster` is anything with a `bootstrap`.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create(cluster, name, partitions=1, configs=None, replicas=3):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(name, partitions, replication_factor=replicas, config=configs or {})
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


def consumed(cluster, topic, count, partition=0):
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
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = []
        end = time.monotonic() + 60
        while len(values) < count and time.monotonic() < end:
            values += [
                each.value() for each in consumer.consume(500, timeout=1) if each.error() is None
            ]
        return values
    finally:
        consumer.close()
