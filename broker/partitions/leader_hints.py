"""The leaders that Produce and Fetch responses name to clients that know another one (KIP-951).

A client that gets the leader and its address need not ask for metadata before it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.network.listed_brokers import listed_brokers

if TYPE_CHECKING:
    from tidelog.broker.metadata.brokers.visible import VisibleBroker
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.services import Services

    Addresses = dict[int, VisibleBroker]  # of the leaders that a response names, by broker id


class LeaderHint(NamedTuple):
    """A partition's leader and its leader epoch."""

    leader: int
    leader_epoch: int


def leader_hint(
    services: Services, context: Context, topic: Topic | None, index: int, addresses: Addresses
) -> LeaderHint | None:
    """Returns the leader of a partition; None if there is none that answers, or no such partition.

    Its address on the listener by which the client came is added to `addresses`, if it has one.
    """
    if topic is None or not 0 <= index < len(topic.assignments):
        return None
    record = topic.assignments[index]
    if record.leader < 0 or services.replicas.is_suspended(topic.topic_id, index):
        return None
    if record.leader not in addresses:
        for each in listed_brokers(services, context).brokers:
            if each.broker == record.leader:
                addresses[each.broker] = each
    return LeaderHint(record.leader, record.leader_epoch)
