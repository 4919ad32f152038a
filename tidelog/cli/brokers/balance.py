"""Which replicas to move so that brokers have as many, and lead as many, as each other.

Pure functions of who has what. A move changes one replica of a partition, and never makes its
replicas be in fewer racks. The smallest partitions of a broker are moved first. Leaders are evened
out by another order of a partition's replicas, which copies nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
    _even_replicas(found, racks, sizes)
    _even_leaders(found, racks)
    return {place: after for place, after in found.items() if after != tuple(assigned[place])}


def added(
    assigned: Mapping[TopicPartition, Replicas], moves: Mapping[TopicPartition, Replicas]
) -> dict[TopicPartition, Replicas]:
    """Returns the replicas that each partition gets and does not have yet, where there are any."""
    found = {
        place: tuple(broker for broker in after if broker not in assigned[place])
        for place, after in moves.items()
    }
    return {place: brokers for place, brokers in found.items() if brokers}


def _even_replicas(
    found: dict[TopicPartition, Replicas],
    racks: Mapping[int, str | None],
    sizes: Mapping[TopicPartition, int],
) -> None:
    """Moves replicas from who has most to who has least."""
    held: dict[int, list[TopicPartition]] = {broker: [] for broker in racks}
    for place in sorted(found, key=lambda each: (sizes.get(each, 0), each)):
        for broker in found[place]:
            if broker in held:
                held[broker].append(place)

    def move(source: int, target: int) -> bool:
        for place in held[source]:
            before = found[place]
            after = tuple(target if broker == source else broker for broker in before)
            if target not in before and _spread(after, racks) >= _spread(before, racks):
                found[place] = after
                held[source].remove(place)
                held[target].append(place)
                return True
        return False

    _even(lambda: Counter({broker: len(places) for broker, places in held.items()}), move)


def _even_leaders(found: dict[TopicPartition, Replicas], racks: Mapping[int, str | None]) -> None:
    """Lets who leads most, by preference, come after another replica in some partitions."""
    led: dict[int, list[TopicPartition]] = {broker: [] for broker in racks}
    for place in sorted(found):
        if found[place] and found[place][0] in led:
            led[found[place][0]].append(place)

    def move(source: int, target: int) -> bool:
        for place in led[source]:
            replicas = found[place]
            if target in replicas:
                at = replicas.index(target)
                found[place] = (target, *replicas[1:at], source, *replicas[at + 1 :])
                led[source].remove(place)
                led[target].append(place)
                return True
        return False

    _even(lambda: Counter({broker: len(places) for broker, places in led.items()}), move)


def _even(counts: Callable[[], Counter[int]], move: Callable[[int, int], bool]) -> None:
    """Moves one thing after another until no two brokers differ by more than one, or none can move."""
    while any(move(source, target) for source, target in _pairs(counts())):
        pass


def _pairs(counts: Counter[int]) -> Iterator[tuple[int, int]]:
    """Yields who may give to whom, the largest difference first."""
    pairs = [
        (source, target)
        for source, target in product(counts, counts)
        if counts[source] - counts[target] > 1
    ]
    yield from sorted(pairs, key=lambda pair: (counts[pair[1]] - counts[pair[0]], pair))


def _spread(replicas: Replicas, racks: Mapping[int, str | None]) -> int:
    """Returns in how many racks replicas are; a broker without a rack is in none."""
    return len({racks.get(broker) for broker in replicas} - {None})
