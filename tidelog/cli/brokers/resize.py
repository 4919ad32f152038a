"""The replicas of `tidelog topics alter --replication-factor`: which brokers get a copy, which lose one.

The first replica, the preferred leader, stays. A new one goes to a broker in a rack that has none yet if
there is one, else to the broker that has least. Those that are not in sync are given up first, and then
the last ones. No replica goes to a broker that is down or closed to new ones (`cordoned.brokers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cli.brokers.assignments import cordoned, counts_of, metadata, racks_of
from tidelog.cli.shared import UsageError
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidelog.cli.cluster import Cluster
    from tidelog.protocol.topic_partition import TopicPartition

Moves = dict["TopicPartition", tuple[int, ...]]


def resized(
    replicas: Sequence[int],
    count: int,
    in_sync: Collection[int],
    racks: Mapping[int, str | None],
    has: Mapping[int, int],
) -> tuple[int, ...]:
    """Returns so many replicas of a partition, fewer if there are too few brokers.

    `racks` are the brokers that can take replicas, and `has` says how many replicas each has.
    """
    found = list(replicas)
    while len(found) > max(count, 1):
        rest = found[1:]
        found.remove(next((each for each in reversed(rest) if each not in in_sync), rest[-1]))
    while len(found) < count:
        free = [each for each in racks if each not in found]
        if not free:
            break
        used = {racks.get(each) for each in found} - {None}
        found.append(min(free, key=lambda each: (racks[each] in used, has.get(each, 0), each)))
    return tuple(found)


def moves_to(cluster: Cluster, names: Collection[str], count: int) -> Moves:
    """Returns the new replicas of the partitions that have another number of them. Raises CommandError."""
    answer, closed = metadata(cluster), cordoned(cluster)
    racks = {each: rack for each, rack in racks_of(answer).items() if each not in closed}
    has, moves = counts_of(answer), Moves()
    for topic in answer.topics:
        for each in topic.partitions if topic.name in names else ():
            before = tuple(each.replica_nodes)
            after = resized(before, count, each.isr_nodes, racks, has)
            if len(after) < count:
                raise UsageError(
                    f"--replication-factor {count}: only {some(len({*before, *racks}), 'broker')} can have "
                    f"replicas of {topic.name}-{each.partition_index}"
                )
            if after != before:
                moves[topic.name, each.partition_index] = after
                has.update(set(after) - set(before))
    return moves
