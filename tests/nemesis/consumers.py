"""Consumers that read all the time, alone or as members of a group, and what they got as a history.

A member commits what it has read after each poll, and asks for the committed offsets whenever it is
assigned partitions. What it has polled of a partition before another assignment is another stream.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from tests.nemesis.checker import EVERYTHING
from tests.nemesis.clients import Client
from tests.nemesis.history import NO_OFFSET, Committed, Failed, Place, Polled, Told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.nemesis.history import History

_POLL_S = 0.2
_ASK_S = 2.0
_SETTINGS = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "log_level": 0,
}
_streams = count()


class Reading(Client):
    """A consumer in a thread of its own."""

    def __init__(self, name: str, group: str, history: History, bootstrap: str) -> None:
        super().__init__(name, history)
        self._settings = {**_SETTINGS, "bootstrap.servers": bootstrap, "group.id": group}

    def work(self) -> None:
        """Reads until the end."""
        consumer = Consumer(self._settings)
        try:
            self.read(consumer)
        finally:
            consumer.close()

    def read(self, consumer: Consumer) -> None:
        """Reads until the end."""
        raise NotImplementedError

    def _polled(self, stream: int, message: Any) -> Place:
        place = Place(message.topic(), message.partition())
        time_ms = message.timestamp()[1]
        self.history.add(
            Polled(self.name, stream, place, message.offset(), message.value(), time_ms)
        )
        return place

    def _error(self, error: KafkaError) -> None:
        """Takes an error that a consumer was told; the client itself tries again after most."""
        if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.history.add(Failed(self.name, str(error)))


class Alone(Reading):
    """Reads all partitions from their beginning, without a group."""

    def __init__(
        self, name: str, history: History, bootstrap: str, places: Iterable[Place]
    ) -> None:
        super().__init__(name, f"no-group-{name}", history, bootstrap)
        self._places = list(places)

    def read(self, consumer: Consumer) -> None:
        """Reads until the end."""
        consumer.assign([TopicPartition(*place, 0) for place in self._places])
        stream = next(_streams)
        while not self.is_over.is_set():
            for message in consumer.consume(500, _POLL_S):
                if message.error() is None:
                    self._polled(stream, message)
                else:
                    self._error(message.error())


class Member(Reading):
    """A member of a group, named GROUP/MEMBER in the history."""

    def __init__(
        self, group: str, member: str, history: History, bootstrap: str, topics: Sequence[str]
    ) -> None:
        super().__init__(f"{group}/{member}", group, history, bootstrap)
        self.group = group
        self._topics = list(topics)
        self._stream = next(_streams)
        self._reached: dict[Place, int] = {}  # what is to be committed

    def read(self, consumer: Consumer) -> None:
        """Reads and commits until the end."""
        consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked)
        while not self.is_over.is_set():
            for message in consumer.consume(200, _POLL_S):
                if message.error() is None:
                    place = self._polled(self._stream, message)
                    self._reached[place] = message.offset() + 1
                else:
                    self._error(message.error())
            self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        if not self._reached:
            return
        wanted = [TopicPartition(*place, offset) for place, offset in self._reached.items()]
        began_s = time.monotonic()
        try:
            answered = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return  # it is committed again with what is read next, unless another member has it
        ended_s = time.monotonic()
        for each in answered or ():
            if each.error is None:
                place = Place(each.topic, each.partition)
                self.history.add(Committed(self.group, place, each.offset, began_s, ended_s))
                if self._reached.get(place) == each.offset:
                    del self._reached[place]

    def _assigned(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        """Goes on where the group has committed, or at the beginning."""
        self._reached.clear()
        self._stream = next(_streams)
        while not self.is_over.is_set():
            began_s = time.monotonic()
            try:
                told = consumer.committed(assigned, timeout=_ASK_S)
            except KafkaException:
                continue
            ended_s = time.monotonic()
            if all(each.error is None for each in told):
                break
        else:
            consumer.assign([])
            return
        for each in told:
            offset = NO_OFFSET if each.offset == OFFSET_INVALID else each.offset
            place = Place(each.topic, each.partition)
            self.history.add(Told(self.group, place, offset, began_s, ended_s))
            each.offset = max(offset, 0)
        consumer.assign(told)

    def _revoked(self, consumer: Consumer, _revoked: list[TopicPartition]) -> None:
        self._commit(consumer)
        self._reached.clear()
        consumer.unassign()


def read_everything(
    history: History, bootstrap: str, places: Iterable[Place], within_s: float = 120
) -> None:
    """Reads all logs from offset 0 to their ends. Adds Failed where that takes too long."""
    open_ends = set(places)
    consumer = Consumer(
        {
            **_SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": "everything",
            "enable.partition.eof": True,
        }
    )
    deadline_s = time.monotonic() + within_s
    try:
        consumer.assign([TopicPartition(*place, 0) for place in open_ends])
        while open_ends:
            if time.monotonic() > deadline_s:
                history.add(Failed(EVERYTHING, f"no end of {sorted(map(str, open_ends))}"))
                return
            for message in consumer.consume(1_000, _POLL_S):
                place = Place(message.topic(), message.partition())
                error = message.error()
                if error is None:
                    time_ms = message.timestamp()[1]
                    history.add(
                        Polled(EVERYTHING, 0, place, message.offset(), message.value(), time_ms)
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(place)
                elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                    history.add(Failed(EVERYTHING, str(error)))
                    return
    finally:
        consumer.close()
