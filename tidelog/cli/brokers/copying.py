"""How much of a number of moves is copied, by the sizes of the logs on the brokers that get replicas."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.client.calls import topics as topic_calls
from tidelog.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.client import Client
    from tidelog.protocol.topic_partition import TopicPartition


class Copying:
    """The replicas that are copied, each with the bytes that it will have, and those that it has."""

    def __init__(
        self,
        added: Mapping[TopicPartition, Sequence[int]],
        sizes: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> None:
        """`added` are the new replicas of each partition, `sizes` the bytes of its leader.

        `leaders` say who leads, and sends to the new replicas.
        """
        self._added, self._leaders = added, leaders
        self._expected = {
            (place, broker): sizes.get(place, 0)
            for place, brokers in added.items()
            for broker in brokers
        }
        self._copied = dict.fromkeys(self._expected, 0)

    @property
    def total(self) -> int:
        """The bytes of all new replicas."""
        return sum(self._expected.values())

    @property
    def copied(self) -> int:
        """The bytes that were there when somebody last looked."""
        return sum(self._copied.values())

    @property
    def left(self) -> int:
        """The bytes that were missing then."""
        return self.total - self.copied

    def largest_of_a_broker(self) -> int:
        """Returns how many bytes are left for the broker that gets most, or for the one that sends most."""
        gets: Counter[int] = Counter()
        sends: Counter[int] = Counter()
        for (place, broker), size in self._expected.items():
            left = size - self._copied[place, broker]
            gets[broker] += left
            if place in self._leaders:
                sends[self._leaders[place]] += left
        return max((*gets.values(), *sends.values()), default=0)

    def look(self, client: Client, places: Iterable[TopicPartition]) -> None:
        """Asks the brokers how much of some partitions they have; one that is away has what it had."""
        asked: dict[tuple[str, int], list[int]] = {}
        for place in places:
            for broker in self._added.get(place, ()):
                asked.setdefault((place[0], broker), []).append(place[1])
        for (topic, broker), indexes in asked.items():
            try:
                found = client.perform(topic_calls.log_sizes(topic, indexes, broker))
            except ClientError:
                continue
            for index, size in found.items():
                self._note((topic, index), broker, size)

    def done(self, place: TopicPartition) -> None:
        """A partition is moved: all of it is there."""
        for broker in self._added.get(place, ()):
            self._note(place, broker, self._expected[place, broker])

    def _note(self, place: TopicPartition, broker: int, size: int) -> None:
        key = (place, broker)
        self._copied[key] = max(self._copied[key], min(size, self._expected[key]))
