"""How much of a number of moves is copied, by the sizes of the logs on the brokers that get replicas."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidelog.client.calls import topics as topic_calls
from tidelog.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.client import Client
    from tidelog.protocol.topic_partition import TopicPartition


class Copying:
    """The new replicas: the bytes that each will have, and those that it had when somebody last looked."""

    def __init__(
        self,
        added: Mapping[TopicPartition, Sequence[int]],
        sizes: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> None:
        """`added` are the new replicas of each partition, which its leader sends; `sizes` its bytes."""
        self._added, self._leaders = added, leaders
        self._copied = {(place, each): 0 for place, brokers in added.items() for each in brokers}
        self._expected = {(place, each): sizes.get(place, 0) for place, each in self._copied}

    @property
    def total(self) -> int:
        """The bytes of all new replicas."""
        return sum(self._expected.values())

    @property
    def copied(self) -> int:
        """The bytes that are there."""
        return sum(self._copied.values())

    @property
    def left(self) -> int:
        """The bytes that are missing."""
        return self.total - self.copied

    def largest_of_a_broker(self) -> int:
        """Returns how many bytes are left for the broker that gets most, or for the one that sends most."""
        gets, sends = Counter[int](), Counter[int]()
        for (place, broker), size in self._expected.items():
            left = size - self._copied[place, broker]
            gets[broker] += left
            if place in self._leaders:
                sends[self._leaders[place]] += left
        return max((*gets.values(), *sends.values()), default=0)

    def look(self, client: Client, places: Iterable[TopicPartition]) -> None:
        """Asks the brokers how much of some partitions they have; one that is away has what it had."""
        asked = defaultdict[tuple[str, int], list[int]](list)
        for topic, index in places:
            for broker in self._added.get((topic, index), ()):
                asked[topic, broker].append(index)
        for (topic, broker), indexes in asked.items():
            try:
                found = client.perform(topic_calls.log_sizes(topic, indexes, broker))
            except ClientError:
                continue
            for index, size in found.items():
                key = ((topic, index), broker)
                self._copied[key] = max(self._copied[key], min(size, self._expected[key]))

    def done(self, place: TopicPartition) -> None:
        """A partition is moved: all of it is there."""
        for broker in self._added.get(place, ()):
            self._copied[place, broker] = self._expected[place, broker]
