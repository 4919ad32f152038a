"""Which broker answers for which partition: only the leader, for no follower knows all of a log's state.

A broker answers for the partitions that it leads, as long as it serves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import BrokerError, LeaderNotAvailable, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.http.services import Services
    from tidelog.broker.metadata.image import Topic


class LeaderMap(NamedTuple):
    """The partitions of a topic by the broker that answers for them."""

    here: frozenset[int]
    others: Mapping[int, list[int]]
    """The partitions that other brokers lead, by broker."""
    unknown: Mapping[int, BrokerError]
    """The partitions that no broker answers for, with the reasons."""


def leader_map(services: Services, topic: Topic, indexes: Iterable[int]) -> LeaderMap:
    """Returns the brokers that answer for these partitions; runs on the event loop."""
    live = services.metadata.image.brokers
    here: set[int] = set()
    others: dict[int, list[int]] = {}
    unknown: dict[int, BrokerError] = {}
    for index in indexes:
        record = topic.assignments[index]
        leader = record.leader
        if leader == services.metadata.node_id:
            try:
                _check_led(services, topic, index)
            except BrokerError as error:
                unknown[index] = error
            else:
                here.add(index)
        elif leader in live:
            others.setdefault(leader, []).append(index)
        else:
            replicas = ", ".join(map(str, record.replicas))
            unknown[index] = LeaderNotAvailable(
                f"nobody leads {topic.name}-{index}, which has replicas on {replicas}"
            )
    return LeaderMap(frozenset(here), others, unknown)


def _check_led(services: Services, topic: Topic, index: int) -> None:
    """Raises NotLeaderOrFollower unless this broker serves a partition that it leads."""
    try:
        services.replicas.check_leads(topic.topic_id, index)
    except NotLeaderOrFollower:
        me, why = services.metadata.node_id, services.cluster.why_not_serving
        raise NotLeaderOrFollower(
            f"broker {me} should lead {topic.name}-{index}, but {why or 'it does not serve it now'}"
        ) from None
