"""On which brokers the replicas of new partitions go, rack by rack (KIP-36).

The brokers stand in a circle, neighbours in different racks. Partition after partition takes the
next broker as its leader, so each leads as many as any other, give or take one. The further replicas
follow in the circle at a distance that grows by one with each round of leaders, so the partitions
of one broker have their other replicas on many. A broker is left out while its rack has a replica
already and another rack has none.

If some broker names no rack, racks count for nothing.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def place(
    racks: Mapping[int, str | None],
    partitions: int,
    factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Returns the replicas of each partition, the preferred leader first.

    `racks` has every broker that may be a replica, and its rack. `start` says which broker leads
    partition 0, and `shift` how far from it the next replica is; both may be any number from 0 on.
    `first_partition` is the number of the first partition to place, if a topic has some already.
    Raises ValueError if there are fewer brokers than replicas.
    """
    if not 1 <= factor <= len(racks):
        raise ValueError(f"{factor} replicas cannot be on {len(racks)} brokers")
    known = racks if None not in racks.values() else dict.fromkeys(racks)
    circle = circle_of(known)
    return [
        _replicas(known, circle, factor, start + index, shift + index // len(circle))
        for index in range(first_partition, first_partition + partitions)
    ]


def circle_of(racks: Mapping[int, str | None]) -> list[int]:
    """Returns the brokers in an order that takes one of each rack in turn."""
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks, key=lambda broker: (racks[broker] or "", broker)):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*by_rack.values())
    return [broker for each in rounds for broker in each if broker is not None]


def _replicas(
    racks: Mapping[int, str | None], circle: list[int], factor: int, first: int, shift: int
) -> tuple[int, ...]:
    """Returns the replicas of one partition whose preferred leader is at `first` in the circle."""
    leader = circle[first % len(circle)]
    count = len(set(racks.values()))
    # Steps of as many brokers as there are racks: the next replica begins at the rack after the
    # leader's, whatever the shift, if the racks are of one size.
    others = _others(circle, first, shift * count)
    taken = [leader]
    while len(taken) < factor:
        used = {racks[broker] for broker in taken}
        left = (broker for broker in others if broker not in taken)
        if len(used) < count:
            left = (broker for broker in left if racks[broker] not in used)
        taken.append(next(left))
    return tuple(taken)


def _others(circle: list[int], first: int, shift: int) -> list[int]:
    """Returns all brokers but the leader, in the order in which they are tried."""
    size = len(circle)
    return [circle[(first + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
