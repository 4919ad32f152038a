"""Limits the bandwidth of moves by Kafka's throttle settings (KIP-73), and removes the limit again.

The rates are those of all brokers, and each topic lists the replicas that they hold for. The rates are
set first and removed last: where they are not set, no list of ours is left. A list `*` and the rates of
single brokers are somebody else's, and stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cli.connecting import raised_as_sentences
from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls.settings import Resource
from tidelog.config.replication_quota import ALL_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.cli.cluster import Cluster
    from tidelog.protocol.topic_partition import TopicPartition

    Replicas = Sequence[int]

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def set_throttle(
    cluster: Cluster,
    rate: int,
    before: Mapping[TopicPartition, Replicas],
    added: Mapping[TopicPartition, Replicas],
) -> None:
    """Limits what is copied to the replicas that are `added` to partitions.

    `rate` is in bytes per second, for each broker; `before` are the replicas that may lead. Raises
    CommandError.
    """
    cluster.alter(None, dict.fromkeys(RATES, str(rate)))
    for topic in dict.fromkeys(topic for topic, _ in added):
        lists = {
            LEADERS: _listed(topic, before, added),
            FOLLOWERS: _listed(topic, added, added),
        }
        kept = _lists_of_all(cluster, topic)
        cluster.alter(topic, {name: text for name, text in lists.items() if name not in kept})


def limit_set(cluster: Cluster) -> bool:
    """Returns whether rates are set for all brokers. Raises CommandError."""
    with raised_as_sentences():
        return bool(cluster.client.perform(setting_calls.describe(Resource(), names=RATES)))


def remove_throttle(cluster: Cluster, topics: Iterable[str]) -> bool:
    """Removes the limit from the brokers and all topics; returns False if none was set.

    Raises CommandError.
    """
    if not limit_set(cluster):
        return False
    for topic in topics:
        changes = {
            entry.name: None
            for entry in cluster.settings(topic, (LEADERS, FOLLOWERS))
            if entry.value not in ("", None, ALL_REPLICAS)
        }
        if changes:
            cluster.alter(topic, changes)
    cluster.alter(None, dict.fromkeys(RATES))
    return True


def _lists_of_all(cluster: Cluster, topic: str) -> set[str]:
    """Returns the lists of a topic that name all replicas already."""
    entries = cluster.settings(topic, (LEADERS, FOLLOWERS))
    return {entry.name for entry in entries if entry.value == ALL_REPLICAS}


def _listed(
    topic: str, replicas: Mapping[TopicPartition, Replicas], among: Iterable[TopicPartition]
) -> str:
    """Returns the replicas of a topic's partitions as the settings list them."""
    return ",".join(
        f"{index}:{broker}"
        for name, index in among
        if name == topic
        for broker in replicas[name, index]
    )
