"""What a run asks of a load: clients that go on whatever happens, and a judgement of what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.nemesis.history import History, Place

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.nemesis.checker import Problem
    from tests.nemesis.clients import Client
    from tests.nemesis.faults import Kinds
    from tidelog.cluster import BrokerCluster

PARTITIONS = 2
STAMPED = "LogAppendTime"


class Load:
    """The clients of one run, and what they are told."""

    topics: ClassVar[dict[str, dict[str, str]]]
    settings: ClassVar[dict[str, object]] = {}
    well_within_s: ClassVar[float]  # after a fault
    more: ClassVar[int]  # what each client has to get through after a fault
    verb: ClassVar[str]  # what `count` counts

    def __init__(self, cluster: BrokerCluster, directory: Path, chance: random.Random) -> None:
        """Makes the clients; files of theirs are in the directory."""
        self.cluster = cluster
        self.directory = directory
        self.random = chance
        self.history = History(
            topic
            for topic, settings in self.topics.items()
            if settings.get("message.timestamp.type") == STAMPED
        )
        self.places = self.places_of(*self.topics)
        self.writers: Sequence[Client] = []
        self.readers: list[Client] = []

    @staticmethod
    def places_of(*topics: str) -> list[Place]:
        """Returns the partitions of topics."""
        return [Place(topic, partition) for topic in topics for partition in range(PARTITIONS)]

    def start(self) -> None:
        """Starts the clients."""
        for client in (*self.writers, *self.readers):
            client.start()

    def finish(self, *, abandon: bool) -> None:
        """Ends the clients, in whatever state they are."""
        for client in (*self.writers, *self.readers):
            client.finish(abandon=abandon)

    @property
    def kinds(self) -> Kinds:
        """The faults that this load has beside those of brokers, by name."""
        return {}

    def disturb(self) -> str:
        """Does something to a client; returns what, in words, or nothing."""
        return ""

    @property
    def count(self) -> int:
        """How much the cluster has acknowledged."""
        raise NotImplementedError

    def progress(self) -> dict[str, int]:
        """Returns how much each client, or group of clients, has got through."""
        raise NotImplementedError

    def awaited(self) -> list[str]:
        """Returns what is to come about yet before a round is over, beside progress."""
        return []

    def kill_hung(self, before: Mapping[str, int]) -> list[str]:
        """Kills clients that hang, which others follow; returns whom, in words."""
        del before
        return []

    def read_back(self) -> None:
        """Adds to the history what is stored in the end, once the writers have ended."""
        raise NotImplementedError

    def problems(self) -> list[Problem]:
        """Returns what is wrong with the history."""
        raise NotImplementedError
