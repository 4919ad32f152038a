"""Loads on a broker by librdkafka (confluent-kafka), as its users would produce them.

The values are text: every other word is random, the rest repeats, so codecs have about as much to
do as with logs or JSON. A load that does not arrive completely raises: the topic's end offset is
compared with the count.
"""

from __future__ import annotations

import random
import time
import uuid
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from brokers import Broker, bootstrap
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 60
_DISTINCT_VALUES = 997
_SAME_WORDS = ("temperature", "humidity", "station", "measured", "quality", "ok", "celsius")


class LoadError(RuntimeError):
    """Records did not arrive, or could not be read."""


def values_of(size: int) -> list[bytes]:
    """Returns values of `size` bytes, always the same ones."""
    chance = random.Random(size)
    values = []
    for _ in range(_DISTINCT_VALUES):
        words: list[str] = []
        length = 0
        while length < size:
            words += [chance.choice(_SAME_WORDS), str(chance.randrange(10**6))]
            length += len(words[-1]) + len(words[-2]) + 2
        values.append(" ".join(words).encode()[:size].ljust(size))
    return values


def make_topic(
    broker: Broker, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Creates a topic with a unique name; returns the name."""
    unique = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = _admin(broker)
    topic = NewTopic(unique, partitions, 1, config=dict(config or {}))
    for created in admin.create_topics([topic], operation_timeout=30).values():
        created.result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    for index in (*range(min(partitions, 16)), partitions - 1):
        while not _is_led(broker, unique, index):
            if time.monotonic() > deadline:
                raise LoadError(f"{broker.name}: {unique}-{index} has no leader")
            time.sleep(0.05)  # another process can only be polled
    return unique


def _is_led(broker: Broker, topic: str, partition: int) -> bool:
    """Returns whether the broker serves a partition: a topic may be created before that."""
    try:
        return end_offset(broker, topic, partition) >= 0
    except KafkaException:
        return False


def _admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap(broker), "log_level": 4})


def drop_topic(broker: Broker, name: str) -> None:
    """Deletes a topic, because the next one needs the disk."""
    admin = _admin(broker)
    for deleted in admin.delete_topics([name], operation_timeout=30).values():
        deleted.result(_TIMEOUT_S)


def produce(
    broker: Broker,
    topic: str,
    count: int,
    value_size: int,
    *,
    partitions: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Produces `count` records, in turn over the partitions, and waits for the last response."""
    values = values_of(value_size)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap(broker),
            "acks": 1,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            **(settings or {}),
        }
    )
    send = producer.produce
    spread = cycle(range(partitions))
    for value in islice(cycle(values), count):
        partition = next(spread)
        while True:
            try:
                send(topic, value, None, partition)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_TIMEOUT_S):
        raise LoadError(f"{broker.name}: records left unsent after {_TIMEOUT_S} s")
    arrived = sum(end_offset(broker, topic, index) for index in range(min(partitions, 8)))
    if partitions <= 8 and arrived != count:
        raise LoadError(f"{broker.name}: {arrived} of {count} records arrived")


def end_offset(broker: Broker, topic: str, partition: int = 0) -> int:
    """Returns the offset after the last record."""
    consumer = _consumer(broker)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S)[1]
    finally:
        consumer.close()


def fetch(
    broker: Broker, topic: str, count: int, settings: Mapping[str, Any] | None = None
) -> None:
    """Reads the first `count` records of partition 0."""
    consumer = _consumer(broker, settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = count
        while left > 0:
            messages = consumer.consume(min(left, 10_000), 20)
            if not messages:
                raise LoadError(f"{broker.name}: {left} of {count} records did not come")
            error = messages[-1].error()
            if error is not None:
                raise LoadError(f"{broker.name}: {error}")
            left -= len(messages)
    finally:
        consumer.close()


def _consumer(broker: Broker, settings: Mapping[str, Any] | None = None) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap(broker),
            "group.id": "bench",  # required; nothing is joined or committed
            "enable.auto.commit": False,
            "queued.min.messages": 10_000_000,  # never pause between fetches
            "queued.max.messages.kbytes": 1_000_000,
            **(settings or {}),
        }
    )
