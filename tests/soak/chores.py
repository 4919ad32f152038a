"""What the clients of a soak do, each in a thread of its own, beside those of `tests/nemesis`."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.broker.asking import create, list_offset, produce, records_for
from tests.nemesis.clients import Client
from tests.nemesis.consumers import Member
from tests.nemesis.history import Acknowledged, Place, value_of
from tests.oracle import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.nemesis.history import History

_FORMATS = 3  # Produce v0 to v2
_NAMES = 12  # of topics and groups that come again
_MEMBER_S = 1.5


class Chore(Client):
    """Does one thing again and again."""

    def __init__(self, name: str, history: History, bootstrap: str, pause_s: float) -> None:
        super().__init__(name, history)
        self.turns = 0
        self.bootstrap = bootstrap
        self.random = random.Random(name)
        self._pause_s = pause_s

    def work(self) -> None:
        """Does it until the end; it is a problem if it was never done."""
        with wire.Connection(self.bootstrap) as connection:
            while not self.is_over.wait(self._pause_s * 2 * self.random.random()):
                self.turn(connection)
                self.turns += 1
        assert self.turns, "it has done nothing"

    def turn(self, connection: wire.Connection) -> None:
        """Does it once; an exception is a problem."""
        raise NotImplementedError


class OldFormats(Chore):
    """Produces messages of formats 0 and 1 with Produce v0 to v2, and notes their offsets."""

    place = Place("old", 0)
    _number = 0

    def turn(self, connection: wire.Connection) -> None:
        count = self.random.randint(1, 5)
        numbers = range(self._number, self._number + count)
        self._number += count
        texts = [value_of(self.name, self.place, each, "." * 50).decode() for each in numbers]
        version = self.random.randrange(_FORMATS)
        answer = produce(
            connection, self.place.topic, records_for(version, *texts), version=version
        )
        assert not answer["error_code"], answer
        for at, number in enumerate(numbers):
            offset = answer["base_offset"] + at
            self.history.add(Acknowledged(self.name, self.place, number, offset))


class Topics(Chore):
    """Makes a topic, writes to it and deletes it."""

    def turn(self, connection: wire.Connection) -> None:
        name = f"passing-{self.turns % _NAMES}"
        partitions = self.random.randint(1, 3)
        create(connection, name, partitions=partitions)
        for partition in range(partitions):
            answer = produce(connection, name, records_for(9, "a", "b"), partition=partition)
            assert not answer["error_code"], answer
        answer = connection.ask("DeleteTopics", 3, topic_names=[name], timeout_ms=10_000)
        assert not answer["responses"][0]["error_code"], answer


class Groups(Chore):
    """Lets a member join a group, read for a moment and leave."""

    def turn(self, connection: wire.Connection) -> None:
        group = f"passing-{self.turns % _NAMES}"
        member = Member(group, str(self.turns), self.history, self.bootstrap, ["plain"])
        member.start()
        self.is_over.wait(_MEMBER_S)
        member.finish()


class Lookups(Chore):
    """Asks for offsets by times between the start and now."""

    def __init__(
        self, name: str, history: History, bootstrap: str, pause_s: float, places: Sequence[Place]
    ) -> None:
        super().__init__(name, history, bootstrap, pause_s)
        self._places = places
        self._began_ms = time.time_ns() // 1_000_000

    def turn(self, connection: wire.Connection) -> None:
        place = self.random.choice(self._places)
        now_ms = time.time_ns() // 1_000_000
        wanted_ms = self.random.randint(self._began_ms - 1_000, now_ms + 1_000)
        found = list_offset(connection, place.topic, wanted_ms, partition=place.partition)
        assert not found["error_code"], found
        assert found["offset"] == -1 or found["timestamp"] >= wanted_ms, (found, wanted_ms)


class Pages(Chore):
    """Asks for pages of the HTTP listener, as monitoring does."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        pause_s: float,
        page: Callable[[str], str],
    ) -> None:
        super().__init__(name, history, bootstrap, pause_s)
        self._page = page

    def turn(self, connection: wire.Connection) -> None:
        assert self._page(self.random.choice(("/metrics", "/healthz")))
