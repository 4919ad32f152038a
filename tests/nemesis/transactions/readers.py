"""Readers of committed data outside of transactions, which begin anew at other offsets now and then."""

from __future__ import annotations

import random
import time
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.nemesis.clients import Client
from tests.nemesis.consumers import Reading
from tests.nemesis.history import Place, Polled, Sought, Told
from tests.nemesis.transactions.asking import Brokers, OverTime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.nemesis.history import History

_POLL_S = 0.1
_STREAM_S = 1.0
_ASK_S = 0.1
_streams = count()


class CommittedOnly(Reading):
    """Reads all partitions with read_committed, from their beginning and then from other offsets."""

    def __init__(
        self, name: str, history: History, bootstrap: str, places: Iterable[Place]
    ) -> None:
        super().__init__(name, f"no-group-{name}", history, bootstrap)
        self._places = list(places)
        self._random = random.Random(name)

    def read(self, consumer: Consumer) -> None:
        """Reads until the end."""
        reached = dict.fromkeys(self._places, 0)
        while not self.is_over.is_set():
            stream = next(_streams)
            starts = {place: self._start(end) for place, end in reached.items()}
            for place, offset in starts.items():
                self.history.add(Sought(self.name, stream, place, offset))
            consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
            until_s = time.monotonic() + _STREAM_S * self._random.uniform(0.5, 2)
            while not self.is_over.is_set() and time.monotonic() < until_s:
                self._poll(consumer, stream, reached)

    def _start(self, end: int) -> int:
        """Returns where the next stream begins: near the end of what was read, or anywhere."""
        if self._random.random() < 0.8:
            return max(0, end - self._random.randrange(30))
        return self._random.randrange(end + 1)

    def _poll(self, consumer: Consumer, stream: int, reached: dict[Place, int]) -> None:
        messages = consumer.consume(500, _POLL_S)
        now_s = time.monotonic()
        for each in messages:
            if each.error() is not None:
                self._error(each.error())
                continue
            place, offset = Place(each.topic(), each.partition()), each.offset()
            self.history.add(Polled(self.name, stream, place, offset, each.value(), 0, now_s))
            reached[place] = max(reached[place], offset + 1)


class Asking(Client):
    """Asks all the time for the committed offsets of groups, of stable ones or of any."""

    def __init__(
        self, history: History, bootstrap: str, groups: Iterable[str], places: Iterable[Place]
    ) -> None:
        super().__init__("offsets", history)
        self._bootstrap = bootstrap
        self._groups, self._places = list(groups), list(places)

    def work(self) -> None:
        """Asks until the end."""
        chance = random.Random(0)
        brokers = Brokers(self._bootstrap, self.is_over.is_set)
        try:
            while not self.is_over.wait(_ASK_S):
                group, place = chance.choice(self._groups), chance.choice(self._places)
                began_s = time.monotonic()
                is_stable = chance.random() < 0.5
                told = brokers.told(group, place, is_stable=is_stable)
                now_s = time.monotonic()
                self.history.add(Told(group, place, told, began_s, now_s, is_stable))
        except OverTime:
            if not self.is_over.is_set():
                raise
        finally:
            brokers.close()
