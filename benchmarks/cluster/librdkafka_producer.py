"""Produces to every partition of a topic, in turn, and prints when each record was acknowledged.

Arguments and lines are those of JavaProducer.java. All settings are librdkafka's defaults but
enable.idempotence. It ends when its standard input does.
"""

from __future__ import annotations

import select
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


def _delivered(error: KafkaError | None, message: Message) -> None:
    partition = message.partition()
    text = f"! {partition} {error}" if error else f"{partition} {time.monotonic_ns()}"
    print(text, flush=True)


def main() -> None:
    """Runs the producer."""
    bootstrap, topic = sys.argv[1:3]
    partitions, pause_s = int(sys.argv[3]), int(sys.argv[4]) / 1000
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    next_s = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for partition in range(partitions):
            producer.produce(topic, bytes(100), partition=partition, on_delivery=_delivered)
        next_s = max(next_s + pause_s, time.monotonic())
        while (left_s := next_s - time.monotonic()) > 0:
            producer.poll(left_s)


if __name__ == "__main__":
    main()
