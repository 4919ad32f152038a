"""Chooses the replicas of new partitions, or checks those that a client chose.

Every registered broker may be a replica. Brokers that can lead now are chosen first: others become
replicas only where there are too few of those. A broker in `cordoned` becomes none, unless a client
chose it. The first ISR has the replicas that can lead; at least one must. All of it is decided on one
image; the result has the comparisons that must hold when it is stored. The errors and their texts
are Kafka's.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.controller.controller import able, new_partition
from tidelog.broker.controller.placement import circle_of, place
from tidelog.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.controller.topics.partition_counts import RequestedPartitions
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.metadata.store import Compare

_MANY = 1 << 16  # more than there are brokers


class Placed(NamedTuple):
    """The first states of partitions, and the comparisons that must hold when they are stored."""

    partitions: tuple[PartitionRecord, ...]
    compares: tuple[Compare, ...] = ()


def of_new_topic(
    image: Image, wanted: RequestedPartitions, cordoned: frozenset[int] = frozenset()
) -> Placed:
    """Places the partitions of a new topic, from a random broker on.

    Raises InvalidReplicationFactor, and InvalidReplicaAssignment for replicas chosen by a client.
    """
    if wanted.assignments:
        return _chosen(image, wanted.assignments, 0, len(wanted.assignments[0]))
    start, shift = secrets.randbelow(_MANY), secrets.randbelow(_MANY)
    return _spread(image, wanted.partitions, wanted.factor, cordoned, start=start, shift=shift)


def of_added(
    image: Image,
    topic: Topic,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    cordoned: frozenset[int] = frozenset(),
) -> Placed:
    """Places partitions that are added to a topic; its leaders go on round-robin.

    `assignments` are the replicas of each, if a client chose them. Raises InvalidReplicationFactor
    and InvalidReplicaAssignment.
    """
    if assignments is not None:
        return _chosen(image, assignments, topic.partitions, topic.replication_factor)
    racks = _racks(image, able(image).brokers - cordoned)
    circle = circle_of(racks)
    leader = topic.assignments[0].replicas[0]
    start = circle.index(leader) if leader in circle else 0
    return _spread(
        image,
        count,
        topic.replication_factor,
        cordoned,
        start=start,
        shift=0,
        first_partition=topic.partitions,
    )


def check_manual_replicas(image: Image, replicas: Sequence[int]) -> None:
    """Checks replicas that a client chose for one partition. Raises InvalidReplicaAssignment."""
    said = "The manual partition assignment includes"
    if not replicas:
        raise InvalidReplicaAssignment(f"{said} an empty replica list.")
    for broker in sorted(replicas):
        if broker not in image.registrations:
            raise InvalidReplicaAssignment(
                f"{said} broker {broker}, but no such broker is registered."
            )
        if replicas.count(broker) > 1:
            raise InvalidReplicaAssignment(f"{said} the broker {broker} more than once.")


def _chosen(
    image: Image, assignments: Sequence[Sequence[int]], first_partition: int, factor: int
) -> Placed:
    brokers = able(image).brokers
    for index, replicas in enumerate(assignments, first_partition):
        check_manual_replicas(image, replicas)
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(replicas)} "
                "replica(s), but this is not consistent with previous partitions, which have "
                f"{factor} replica(s)."
            )
        if brokers.isdisjoint(replicas):
            raise InvalidReplicaAssignment(
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown."
            )
    return _placed(image, assignments)


def _spread(
    image: Image,
    count: int,
    factor: int,
    cordoned: frozenset[int],
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> Placed:
    registered = set(image.registrations) - cordoned
    brokers = able(image).brokers - cordoned
    failed = f"Unable to replicate the partition {factor} time(s): "
    if factor > len(registered):
        raise InvalidReplicationFactor(
            f"{failed}The target replication factor of {factor} cannot be reached because only "
            f"{len(registered)} broker(s) are registered."
        )
    if not brokers:
        raise InvalidReplicationFactor(
            f"{failed}All brokers are currently fenced or in controlled shutdown."
        )
    found: list[tuple[int, ...]] = [()] * count
    leading, others = min(factor, len(brokers)), registered - brokers
    for group, replicas in ((brokers, leading), (others, factor - leading)):
        if replicas:
            more = place(
                _racks(image, group),
                count,
                replicas,
                start=start,
                shift=shift,
                first_partition=first_partition,
            )
            found = [had + added for had, added in zip(found, more, strict=True)]
    return _placed(image, found)


def _placed(image: Image, assignments: Iterable[Sequence[int]]) -> Placed:
    records: list[PartitionRecord] = []
    compares: dict[Compare, None] = {}
    made: dict[tuple[int, ...], tuple[PartitionRecord, tuple[Compare, ...]]] = {}
    for replicas in map(tuple, assignments):
        known = made.get(replicas)  # thousands of partitions have few different ones
        if known is None:
            known = made[replicas] = new_partition(image, replicas)
        record, conditions = known
        records.append(record)
        compares.update(dict.fromkeys(conditions))
    return Placed(tuple(records), tuple(compares))


def _racks(image: Image, brokers: Iterable[int]) -> dict[int, str | None]:
    """Returns the rack of each broker; None for a broker without a rack or without a session."""
    sessions = image.brokers
    return {
        broker: sessions[broker].record.rack if broker in sessions else None for broker in brokers
    }
