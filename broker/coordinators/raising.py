"""How many replicas an internal topic has: as many as its setting, or all brokers if fewer.

The first broker that needs the topic creates it with the brokers that are there. When more can
lead, the controller's broker adds replicas by reassignments (KIP-455), and spreads the preferred
leaders, because each coordinates the keys of its partitions. Replicas are never removed. Brokers
that are cordoned are not chosen, and are not counted: an operator empties them.

Everything is a function of the image.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.controller import reassignment
from tidelog.broker.controller.controller import able
from tidelog.broker.metadata.brokers.keys import CONTROLLER
from tidelog.broker.metadata.store import Compare
from tidelog.broker.metadata.transactions import batched, change

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.transactions import PartitionChange, Transaction


def factor(image: Image, wanted: int, cordoned: frozenset[int] = frozenset()) -> int:
    """Returns how many replicas each partition can have now, of `wanted` ones."""
    return max(1, min(wanted, len(able(image).brokers - cordoned)))


def raising(
    image: Image, topic: str, wanted: int, cordoned: frozenset[int] = frozenset()
) -> list[Transaction]:
    """Returns what the controller writes so that each partition of a topic has `wanted` replicas.

    Nothing is returned while all have as many as there are brokers that can lead and are not
    `cordoned`. A partition that is being reassigned is left alone.
    """
    if image.controller is None:
        return []
    guard = Compare(CONTROLLER, "create", "=", image.controller.epoch)
    return list(batched(_changes(image, topic, wanted, cordoned), (guard,)))


def _changes(
    image: Image, topic: str, wanted: int, cordoned: frozenset[int]
) -> list[PartitionChange]:
    known, brokers = image.topics.get(topic), able(image).brokers - cordoned
    count = factor(image, wanted, cordoned)
    if known is None or all(len(each.replicas) >= count for each in known.assignments):
        return []
    has: Counter[int] = Counter(b for each in known.assignments for b in reassignment.target(each))
    leads: Counter[int] = Counter()
    found = []
    for index, record in enumerate(known.assignments):
        before = reassignment.target(record)
        if reassignment.is_in_progress(record) or len(before) >= count:
            leads[before[0]] += 1
            continue
        added = _added(image, before, sorted(brokers - set(before)), count - len(before), has)
        replicas = _led_by_the_least_busy((*before, *added), leads)
        after = reassignment.begin(record, replicas, brokers)
        found.append(change(image, topic, index, after, added, "internal topic raised"))
        has.update(added)
        leads[replicas[0]] += 1
    return found


def _added(
    image: Image, before: tuple[int, ...], others: list[int], count: int, has: Counter[int]
) -> tuple[int, ...]:
    """Returns the brokers to add to a partition: in other racks first, then those that have least."""

    def rack(broker: int) -> str | None:
        live = image.brokers.get(broker)
        return None if live is None else live.record.rack

    chosen: list[int] = []
    for _ in range(count):
        racks = {rack(broker) for broker in (*before, *chosen)} - {None}
        left = [broker for broker in others if broker not in chosen]
        chosen.append(min(left, key=lambda broker: (rack(broker) in racks, has[broker], broker)))
    return tuple(chosen)


def _led_by_the_least_busy(replicas: tuple[int, ...], leads: Counter[int]) -> tuple[int, ...]:
    """Returns the replicas with the preferred leader first: of those the one that leads least."""
    first = min(
        replicas, key=lambda broker: leads[broker]
    )  # the one that is there already, if equal
    return (first, *(broker for broker in replicas if broker != first))
