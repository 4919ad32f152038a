"""Which replicas to move so that brokers have as many, and lead as many, as each other.

Pure functions of who has what. A move changes one replica of a partition, and never makes its
replicas be in fewer racks. The smallest partitions of a broker are moved first. Leaders are evened
out by another order of a partition's replicas, which copies nothing.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.protocol.topic_partition import TopicPartition

    Replicas = tuple[int, ...]
    Racks = Mapping[int, str | None]


def balanced(
    assigned: Mapping[TopicPartition, Replicas], racks: Racks, sizes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Replicas]:
    """Returns the partitions whose replicas change, with their new ones, the preferred leader first.

    `racks` are the brokers that may take replicas; what others have stays where it is. `sizes` are
    the bytes of one replica. Afterwards no two of the brokers differ by more than one replica, nor
    by more than one preferred leader, as far as moves from one broker to another can bring that about.
    """
    found = dict(assigned)
    for first in (None, 1):  # all replicas, then the preferred leaders
        held: dict[int, list[TopicPartition]] = {broker: [] for broker in racks}
        for place in sorted(found, key=lambda each: (0 if first else sizes.get(each, 0), each)):
            for broker in found[place][:first]:
                if broker in held:
                    held[broker].append(place)
        while _is_moved(found, held, racks, is_leader=first == 1):
            pass
    return {place: after for place, after in found.items() if after != tuple(assigned[place])}


def _is_moved(
    found: dict[TopicPartition, Replicas],
    held: Mapping[int, list[TopicPartition]],
    racks: Racks,
    *,
    is_leader: bool,
) -> bool:
    """Moves one partition to a broker that holds at least two less; returns whether one could be."""
    pairs = [(len(held[b]) - len(held[a]), a, b) for a, b in permutations(held, 2)]
    for less, source, target in sorted(pairs):
        for place in held[source] if less < -1 else ():
            before = found[place]
            is_there = target in before
            after = tuple({source: target, target: source}.get(each, each) for each in before)
            if is_there == is_leader and _spread(after, racks) >= _spread(before, racks):
                found[place] = after
                held[source].remove(place)
                held[target].append(place)
                return True
    return False


def _spread(replicas: Replicas, racks: Racks) -> int:
    return len({racks.get(broker) for broker in replicas} - {None})
