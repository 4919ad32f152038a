"""Which replicas to move so that brokers have as many, and lead as many, as each other.

Pure functions of who has what. A move changes one replica of a partition, and never makes its
replicas be in fewer racks. The smallest partitions of a broker are moved first. Leaders are evened
out by another order of a partition's replicas, which copies nothing.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.protocol.topic_partition import TopicPartition

    Replicas = tuple[int, ...]


def balanced(
    assigned: Mapping[TopicPartition, Replicas],
    racks: Mapping[int, str | None],
    sizes: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Replicas]:
    """Returns the partitions whose replicas change, with their new ones, the preferred leader first.

    `racks` are the brokers that may take replicas; what others have stays where it is. `sizes` are
    the bytes of one replica. Afterwards no two of the brokers differ by more than one replica, nor
    by more than one preferred leader, as far as moves from one broker to another can bring that about.
    """
    found = dict(assigned)

    def spread(replicas: Replicas) -> int:
        return len({racks.get(broker) for broker in replicas} - {None})

    def replaced(replicas: Replicas, source: int, target: int) -> Replicas:
        after = tuple(target if each == source else each for each in replicas)
        is_allowed = target not in replicas and spread(after) >= spread(replicas)
        return after if is_allowed else replicas

    def led(replicas: Replicas, source: int, target: int) -> Replicas:
        swapped = {source: target, target: source} if target in replicas else {}
        return tuple(swapped.get(each, each) for each in replicas)

    smallest_first = sorted(found, key=lambda each: (sizes.get(each, 0), each))
    _even(found, smallest_first, racks, None, replaced)
    _even(found, sorted(found), racks, 1, led)
    return {place: after for place, after in found.items() if after != tuple(assigned[place])}


def _even(
    found: dict[TopicPartition, Replicas],
    places: Iterable[TopicPartition],
    brokers: Iterable[int],
    first: int | None,
    moved: Callable[[Replicas, int, int], Replicas],
) -> None:
    """Moves one partition after another until no two brokers hold two more or less, or none can move.

    A broker holds those that have it among the `first` of their replicas. `moved` returns replicas in which
    one broker gives its place to another, or the same ones.
    """
    held: dict[int, list[TopicPartition]] = {broker: [] for broker in brokers}
    for place in places:
        for broker in found[place][:first]:
            if broker in held:
                held[broker].append(place)

    def more(pair: tuple[int, int]) -> int:
        return len(held[pair[0]]) - len(held[pair[1]])

    def is_moved(source: int, target: int) -> bool:
        for place in held[source]:
            after = moved(found[place], source, target)
            if after != found[place]:
                found[place] = after
                held[source].remove(place)
                held[target].append(place)
                return True
        return False

    def is_evened() -> bool:
        pairs = [pair for pair in permutations(held, 2) if more(pair) > 1]
        return any(is_moved(*pair) for pair in sorted(pairs, key=lambda pair: (-more(pair), pair)))

    while is_evened():
        pass
