"""Limits the bandwidth of moves by Kafka's throttle settings (KIP-73), and removes the limit again.

The rates are those of all brokers, and each topic lists the replicas that they hold for. The rates are
set first and removed last: where they are not set, no list of ours is left. A list `*` and the rates of
single brokers are somebody else's, and stay.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls.settings import Resource
from tidelog.config.replication_quota import ALL_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.cli.cluster import Cluster
    from tidelog.protocol.topic_partition import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def set_throttle(
    cluster: Cluster,
    rate: int,
    before: Mapping[TopicPartition, Sequence[int]],
    added: Mapping[TopicPartition, Sequence[int]],
) -> None:
    """Limits what is copied to the replicas that are `added` to partitions. Raises CommandError.

    `rate` is in bytes per second, for each broker; `before` are the replicas that may lead.
    """
    cluster.alter(None, dict.fromkeys(RATES, str(rate)))
    for topic, places in groupby(sorted(added), itemgetter(0)):
        indexes = [index for _, index in places]
        lists = {
            name: ",".join(f"{each}:{one}" for each in indexes for one in replicas[topic, each])
            for name, replicas in ((LEADERS, before), (FOLLOWERS, added))
        }
        _set_lists(cluster, topic, lists)


def limit_set(cluster: Cluster) -> bool:
    """Returns whether rates are set for all brokers. Raises CommandError."""
    return bool(cluster.perform(setting_calls.describe(Resource(), names=RATES)))


def remove_throttle(cluster: Cluster) -> bool:
    """Removes the limit from brokers and topics; returns False if none was set. Raises CommandError."""
    if not limit_set(cluster):
        return False
    for topic in cluster.topics():
        _set_lists(cluster, topic.name, dict.fromkeys((LEADERS, FOLLOWERS)))
    cluster.alter(None, dict.fromkeys(RATES))
    return True


def _set_lists(cluster: Cluster, topic: str, lists: Mapping[str, str | None]) -> None:
    """Sets the lists of a topic, or removes them, but for those that name all replicas."""
    now = {entry.name: entry.value for entry in cluster.settings(topic, (LEADERS, FOLLOWERS))}
    changes = {
        name: text
        for name, text in lists.items()
        if now.get(name) != ALL_REPLICAS and (text or now.get(name))
    }
    if changes:
        cluster.alter(topic, changes)
