"""Producers that write all the time, and add to a history what they were told.

Each numbers its records by partition. A record is numbered when the client has taken it, and is sent
again by nobody but the client.

A producer of librdkafka that writes to several partitions has one request in flight. With more, an
OUT_OF_ORDER_SEQUENCE_NUMBER of one partition, which is right after a request that was refused, makes it
raise its epoch and send again what another partition may have stored already
(https://github.com/confluentinc/librdkafka/issues/4953).
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from tests.nemesis.clients import Client
from tests.nemesis.history import NO_OFFSET, Acknowledged, Failed, Refused, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.nemesis.history import History, Place

PATIENCE_S = 120  # for an acknowledgement; longer than any fault
_LOOK_S = 0.1
_PAUSE_S = 0.02
_BURST = 5
_OUTSTANDING = 200


class Writing(Client):
    """A producer in a thread of its own."""

    patience_s = PATIENCE_S + 20

    def __init__(
        self, name: str, history: History, bootstrap: str, places: Sequence[Place]
    ) -> None:
        super().__init__(name, history)
        self.bootstrap = bootstrap
        self._places = places
        self._numbers: defaultdict[Place, int] = defaultdict(int)
        self._random = random.Random(name)

    def _bursts(self) -> Any:
        """Yields records for one partition after another: (place, number, value) of each."""
        while not self.is_over.is_set():
            place = self._random.choice(self._places)
            burst = []
            for _ in range(self._random.randint(1, _BURST)):
                number = self._numbers[place]
                self._numbers[place] += 1
                value = value_of(self.name, place, number, "." * self._random.randint(0, 300))
                burst.append((place, number, value))
            yield burst
            time.sleep(self._random.random() * 2 * _PAUSE_S)

    def _acknowledged(self, place: Place, number: int, offset: int | None) -> None:
        known = NO_OFFSET if offset is None or offset < 0 else offset
        self.history.add(Acknowledged(self.name, place, number, known))

    def _refused(self, place: Place, number: int, reason: object) -> None:
        if not self.is_abandoned:
            self.history.add(Refused(self.name, place, number, str(reason)))


class Librdkafka(Writing):
    """An idempotent producer of librdkafka with acks=all, or what `settings` make of it."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        **settings: Any,
    ) -> None:
        super().__init__(name, history, bootstrap, places)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "queue.buffering.max.messages": _OUTSTANDING,
            "message.timeout.ms": PATIENCE_S * 1000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            "log_level": 0,
            "error_cb": self._error,
            **settings,
        }

    def work(self) -> None:
        """Writes until the end."""
        producer = Producer(self._settings)
        for burst in self._bursts():
            for place, number, value in burst:
                while not self._is_taken(producer, place, number, value):
                    producer.poll(_LOOK_S)
                    if self.is_abandoned:
                        break
            producer.poll(0)
        deadline_s = time.monotonic() + PATIENCE_S
        while left := producer.flush(_LOOK_S):
            if self.is_abandoned:
                producer.purge()
            elif time.monotonic() > deadline_s:
                what = f"{left} records neither acknowledged nor refused"
                self.history.add(Failed(self.name, what))
                return

    def _is_taken(self, producer: Producer, place: Place, number: int, value: bytes) -> bool:
        def told(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._acknowledged(place, number, message.offset())
            else:
                self._refused(place, number, error)

        try:
            producer.produce(place.topic, value, partition=place.partition, on_delivery=told)
        except BufferError:
            return False
        return True

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.history.add(Failed(self.name, str(error)))
            self.is_over.set()


class KafkaPython(Writing):
    """An idempotent producer of kafka-python with acks=all."""

    def work(self) -> None:
        """Writes until the end."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            delivery_timeout_ms=PATIENCE_S * 1000,
            max_block_ms=PATIENCE_S * 1000,
            request_timeout_ms=5_000,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=500,
            retry_backoff_ms=20,
        )
        under_way: list[tuple[Place, int, Any]] = []
        for burst in self._bursts():
            for place, number, value in burst:
                future = producer.send(place.topic, value, partition=place.partition)
                under_way.append((place, number, future))
            under_way = self._settled(under_way)
            if len(under_way) >= _OUTSTANDING:
                self._await(under_way[0])
        for each in under_way:
            self._await(each)
        self._settled(under_way)
        producer.close(timeout=0 if self.is_abandoned else PATIENCE_S)

    def _await(self, sent: tuple[Place, int, Any]) -> None:
        place, number, future = sent
        deadline_s = time.monotonic() + PATIENCE_S
        while not future.is_done and not self.is_abandoned:
            time.sleep(_PAUSE_S)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{place}/{number} is neither acknowledged nor refused")

    def _settled(self, under_way: list[tuple[Place, int, Any]]) -> list[tuple[Place, int, Any]]:
        """Adds what is decided to the history; returns the others."""
        left = []
        for place, number, future in under_way:
            if not future.is_done:
                left.append((place, number, future))
            elif future.failed():
                self._refused(place, number, repr(future.exception))
            else:
                self._acknowledged(place, number, future.value.offset)
        return left
