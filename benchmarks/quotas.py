"""Whether a quota holds: the same librdkafka clients against tidelog and Apache Kafka, each with a quota.

A producer sends as fast as it may for 33 s, and a consumer reads what another client has written.
Both have a quota of their client id. A burst of ten seconds' worth passes at first, as Kafka has it; from
then on the rate is held. The table has the rate of the first eleven seconds and that of the rest, each as a
part of the quota, and the longest throttle time that the clients were told.

    python benchmarks/quotas.py                     both brokers
    python benchmarks/quotas.py --only tidelog
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (0, 1)]

from brokers import Kafka, Tidelog, bootstrap
from confluent_kafka import Consumer, Producer, TopicPartition
from printing import add_json, print_each

from tests.oracle import wire

if TYPE_CHECKING:
    from brokers import Broker

MB = 1_000_000
_BURST_S = 11.0  # all windows: what came in the first of them counts until then
_TOPIC = "quotas"
_VALUE = bytes(range(256)) * 4  # 1,024 bytes, sent as they are
_PRODUCER, _CONSUMER = "quota-producer", "quota-consumer"


class Held(NamedTuple):
    """What a client was given of its quota."""

    broker: str
    quota: str
    first: float  # rate of the first eleven seconds / quota
    rest: float
    throttle_ms: int  # the longest that the client was told


class _Meter:
    """Bytes by the second in which they came, and throttle times."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.seconds: dict[int, int] = {}
        self.throttle_ms = 0

    def count(self, size: int) -> None:
        second = int(time.monotonic() - self.began_s)
        self.seconds[second] = self.seconds.get(second, 0) + size

    def throttled(self, event: object) -> None:
        self.throttle_ms = max(self.throttle_ms, int(event.throttle_time * 1000))  # type: ignore[attr-defined]

    def held(self, broker: str, quota: str, limit: int, run_s: int) -> Held:
        early = sum(size for second, size in self.seconds.items() if second < _BURST_S)
        late = sum(size for second, size in self.seconds.items() if _BURST_S <= second < run_s)
        return Held(
            broker,
            quota,
            early / _BURST_S / limit,
            late / (run_s - _BURST_S) / limit,
            self.throttle_ms,
        )


def _prepare(broker: Broker, limit: int) -> None:
    """Makes the topic and sets the quotas."""
    with wire.Connection(bootstrap(broker)) as connection:
        topic = {"name": _TOPIC, "num_partitions": 1, "replication_factor": 1}
        topics = [{**topic, "assignments": [], "configs": []}]
        connection.ask("CreateTopics", 5, topics=topics, timeout_ms=30_000, validate_only=False)
        entries = [
            {
                "entity": [{"entity_type": "client-id", "entity_name": client}],
                "ops": [{"key": key, "value": float(limit), "remove": False}],
            }
            for client, key in (
                (_PRODUCER, "producer_byte_rate"),
                (_CONSUMER, "consumer_byte_rate"),
            )
        ]
        answer = connection.ask("AlterClientQuotas", 1, entries=entries, validate_only=False)
        assert not any(each["error_code"] for each in answer["entries"]), answer


def _fill(broker: Broker, size: int) -> None:
    """Writes what the consumer will read, without a quota."""
    producer = Producer({"bootstrap.servers": bootstrap(broker), "client.id": "filler"})
    for _ in range(size // len(_VALUE)):
        while True:
            try:
                producer.produce(_TOPIC, _VALUE)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def _produce(broker: Broker, limit: int, run_s: int) -> Held:
    meter = _Meter()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap(broker),
            "client.id": _PRODUCER,
            "acks": "1",
            "batch.size": 100_000,
            "queue.buffering.max.kbytes": 4096,
            "throttle_cb": meter.throttled,
        }
    )

    def delivered(error: object, _message: object) -> None:
        if error is None:
            meter.count(len(_VALUE))

    while time.monotonic() < meter.began_s + run_s:
        try:
            producer.produce(_TOPIC, _VALUE, on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    producer.purge()
    producer.flush(10)
    return meter.held(broker.name, "producer_byte_rate", limit, run_s)


def _consume(broker: Broker, limit: int, run_s: int) -> Held:
    meter = _Meter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap(broker),
            "client.id": _CONSUMER,
            "group.id": "quotas",
            "fetch.message.max.bytes": 262_144,
            "queued.max.messages.kbytes": 1024,
            "enable.auto.commit": False,
            "throttle_cb": meter.throttled,
        }
    )
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    while time.monotonic() < meter.began_s + run_s:
        for message in consumer.consume(500, timeout=0.1):
            if message.error() is None:
                meter.count(len(message.value()))
    consumer.close()
    return meter.held(broker.name, "consumer_byte_rate", limit, run_s)


def measure(broker: Broker, limit: int, run_s: int) -> list[Held]:
    """Returns what both clients were given by a broker that is started for it."""
    broker.start()
    try:
        _prepare(broker, limit)
        _fill(broker, limit * (run_s + 20))
        return [_consume(broker, limit, run_s), _produce(broker, limit, run_s)]
    finally:
        broker.stop()


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", choices=("tidelog", "kafka"), help="one broker alone")
    parser.add_argument("--rate", type=int, default=2 * MB, help="the quotas, in bytes a second")
    parser.add_argument("--seconds", type=int, default=33, help="how long each client runs")
    add_json(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-quotas-") as directory:
        found = (
            held
            for name, kind in (("tidelog", Tidelog), ("kafka", Kafka))
            if options.only in (None, name)
            for held in measure(kind(Path(directory) / name, 0), options.rate, options.seconds)
        )
        head = f"{'broker':10} {'quota':20} {'first 11 s':>10} {'then':>6}  told (ms)"
        print_each(found, head, _line, as_json=options.json)


def _line(each: Held) -> str:
    return (
        f"{each.broker:10} {each.quota:20} {each.first:10.2f} {each.rest:6.2f}  {each.throttle_ms}"
    )


if __name__ == "__main__":
    main()
