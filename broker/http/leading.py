"""Which broker answers for which partition: what a log's leader alone knows, no follower guesses.

A broker that is alone answers for everything. One of several answers for the partitions that it leads, as
long as it serves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import BrokerError, LeaderNotAvailable, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.node import Node


class Answering(NamedTuple):
    """Who answers for the partitions of a topic."""

    here: frozenset[int]
    others: Mapping[int, list[int]]
    """The partitions that other brokers lead, by broker."""
    unknown: Mapping[int, BrokerError]
    """The partitions for which nobody answers, and why."""


def answering_for(node: Node, topic: Topic, indexes: Iterable[int]) -> Answering:
    """Returns who answers for these partitions; runs on the event loop."""
    if node.cluster is None:
        return Answering(frozenset(indexes), {}, {})
    live = node.metadata.image.brokers
    here: set[int] = set()
    others: dict[int, list[int]] = {}
    unknown: dict[int, BrokerError] = {}
    for index in indexes:
        record = topic.assignments[index]
        leader = record.leader
        if leader == node.metadata.node_id:
            try:
                _check_led(node, topic, index)
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
    return Answering(frozenset(here), others, unknown)


def _check_led(node: Node, topic: Topic, index: int) -> None:
    """Raises NotLeaderOrFollower unless this broker serves a partition as the leader that it is."""
    assert node.cluster is not None
    assert node.replicas is not None
    me = node.metadata.node_id
    led = node.replicas.led_by_id(topic.topic_id, index)
    if led is not None:
        try:
            return led.check_leading()
        except NotLeaderOrFollower:
            pass
    why = node.cluster.why_not_serving or "it does not serve it now"
    raise NotLeaderOrFollower(f"broker {me} should lead {topic.name}-{index}, but {why}")
