"""Producers under way while their broker is killed, and the account of what they were promised.

A producer numbers its records per partition and notes every acknowledgement with its offset. After the
last kill everything is read back with a real consumer; `problems` compares what was promised with what
is there and gives a list of sentences, empty if all is well. `cut` and `double` plant the two faults the
account must find: acknowledged bytes that are gone, and a batch that is there twice.
"""

from __future__ import annotations

import struct
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaProducer

from tests.broker.subject import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.subject import Subject

PARTITIONS = 3
_OUTSTANDING = 100
_PATIENCE_S = 100


class Account:
    """One producer: what it sent, and which offsets it was promised."""

    is_idempotent = True

    def __init__(self, name: str, broker: Subject, topic: str) -> None:
        self.name = name
        self.topic = topic
        self.bootstrap = broker.bootstrap
        self.sent = [0] * PARTITIONS
        self.promised: dict[tuple[int, int], int] = {}  # (partition, number) -> offset
        self.failed: list[str] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin sending."""
        self._thread.start()

    def finish(self) -> None:
        """Send no more and wait for the last acknowledgement."""
        self._enough.set()
        self._thread.join(_PATIENCE_S + 20)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _next(self, turn: int) -> tuple[int, int, bytes]:
        """Partition, number and value of the next record."""
        partition = turn % PARTITIONS
        number = self.sent[partition]
        self.sent[partition] += 1
        return (
            partition,
            number,
            f"{self.name}:{partition}:{number}:".encode() + b"." * (turn % 200),
        )

    def _work(self) -> None:
        try:
            self._produce()
        except Exception as error:  # a fatal one: it will send nothing more
            self.failed.append(f"{self.name}: {error}")

    def _produce(self) -> None:
        raise NotImplementedError


class Librdkafka(Account):
    """An idempotent producer of confluent-kafka, acks=all."""

    def __init__(self, name: str, broker: Subject, topic: str, **settings: Any) -> None:
        super().__init__(name, broker, topic)
        self._settings = settings

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "queue.buffering.max.messages": _OUTSTANDING,
                "message.timeout.ms": _PATIENCE_S * 1_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
                "error_cb": self._error,
                **self._settings,
            }
        )
        turn = 0
        while not self._enough.is_set():
            partition, number, value = self._next(turn)
            turn += 1
            while not self._sent(producer, partition, number, value):
                producer.poll(0.05)
            producer.poll(0)
        left = producer.flush(_PATIENCE_S)
        if left:
            self.failed.append(f"{self.name}: {left} records neither acknowledged nor refused")

    def _sent(self, producer: Producer, partition: int, number: int, value: bytes) -> bool:
        def told(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.failed.append(f"{self.name}: {partition}/{number}: {error}")
                self._enough.set()  # what follows a refusal only repeats it
            else:
                self.promised[partition, number] = message.offset()

        try:
            producer.produce(self.topic, value, partition=partition, on_delivery=told)
        except BufferError:
            return False
        return True

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failed.append(f"{self.name}: {error}")
            self._enough.set()


class KafkaPython(Account):
    """kafka-python without idempotence, acks=all, one request at a time: no loss, but duplicates."""

    is_idempotent = False

    def _produce(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            retries=10_000,
            linger_ms=2,
            delivery_timeout_ms=_PATIENCE_S * 1_000,
            max_block_ms=_PATIENCE_S * 1_000,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=20,
        )
        outstanding: list[tuple[int, int, Any]] = []
        turn = 0
        while not self._enough.is_set():
            partition, number, value = self._next(turn)
            turn += 1
            future = producer.send(self.topic, value, partition=partition)
            outstanding.append((partition, number, future))
            if len(outstanding) >= _OUTSTANDING:
                self._collect(outstanding)
        self._collect(outstanding)
        producer.close(timeout=60)

    def _collect(self, outstanding: list[tuple[int, int, Any]]) -> None:
        for partition, number, future in outstanding:
            try:
                self.promised[partition, number] = future.get(_PATIENCE_S).offset
            except Exception as error:
                self.failed.append(f"{self.name}: {partition}/{number}: {error!r}")
                self._enough.set()
        outstanding.clear()


def wait_for_promises(accounts: list[Account], more: int) -> None:
    """Until every producer has been promised `more` records than now, or has given up."""
    wanted = {account.name: len(account.promised) + more for account in accounts}
    eventually(
        lambda: all(len(a.promised) >= wanted[a.name] or a.failed for a in accounts),
        deadline_s=_PATIENCE_S,
        what="acknowledgements",
    )


def read_back(broker: Subject, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) of every record of every partition, by a real consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    open_ends = set(found)
    while open_ends:
        message = consumer.poll(60)
        assert message is not None, (
            f"the consumer stands still; at {[len(f) for f in found.values()]}"
        )
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            open_ends.discard(message.partition())
        else:
            found[message.partition()].append((message.offset(), message.value()))
    consumer.close()
    return found


def problems(accounts: list[Account], found: dict[int, list[tuple[int, bytes]]]) -> list[str]:
    """Every way in which what is there is not what was promised."""
    said = [sentence for account in accounts for sentence in account.failed]
    by_name = {account.name: account for account in accounts}
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    places: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for partition, records in found.items():
        offsets = [offset for offset, _ in records]
        if offsets != list(range(len(offsets))):
            said.append(f"partition {partition}: offsets are not 0, 1, 2 ...")
        for offset, value in records:
            name, told, number, _ = value.decode().split(":")
            if int(told) != partition or name not in by_name:
                said.append(f"partition {partition}: {value!r} at {offset} is not from here")
            seen[name, partition].append(int(number))
            places[name, partition, int(number)].append(offset)
    for account in accounts:
        lost = [
            (partition, number, offset)
            for (partition, number), offset in account.promised.items()
            if offset not in places[account.name, partition, number]
        ]
        if lost:
            said.append(f"{account.name}: {len(lost)} acknowledged and lost, as {min(lost)}")
        for partition in range(PARTITIONS):
            numbers = seen[account.name, partition]
            if not account.is_idempotent:
                numbers = list(dict.fromkeys(numbers))  # the first time each was written
            elif len(set(numbers)) != len(numbers):
                said.append(f"{account.name}: partition {partition} has records twice")
            if numbers != sorted(numbers):
                said.append(f"{account.name}: partition {partition} is out of order")
    return said


def cut(directory: Path) -> None:
    """Planted: every partition's last segment loses its second half."""
    for log in last_segments(directory):
        size = log.stat().st_size
        with log.open("r+b") as file:
            file.truncate(size // 2)


def double(directory: Path) -> None:
    """Planted: the last idempotent batch of partitions is there once more, with offsets of its own."""
    doubled = 0
    for log in last_segments(directory):
        data = log.read_bytes()
        position, copied, end_offset = 0, b"", 0
        while position + 61 <= len(data):
            base, size = struct.unpack_from(">qi", data, position)
            if position + 12 + size > len(data):
                break
            end_offset = base + struct.unpack_from(">i", data, position + 23)[0] + 1
            if struct.unpack_from(">q", data, position + 43)[0] >= 0:
                copied = data[position + 8 : position + 12 + size]
            position += 12 + size
        if copied:
            doubled += 1
            log.write_bytes(data[:position] + struct.pack(">q", end_offset) + copied)
    assert doubled, "no segment holds an idempotent batch"


def last_segments(directory: Path) -> list[Path]:
    """The active log file of every partition that has records in it."""
    partitions = [path for path in directory.iterdir() if list(path.glob("*.log"))]
    segments = [max(path.glob("*.log")) for path in partitions]
    found = [log for log in segments if log.stat().st_size > 0]
    assert found
    return found
